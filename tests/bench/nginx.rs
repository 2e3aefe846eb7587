//! nginx as what it is to be compared with: a plain reverse proxy that passes the bytes on.
//!
//! Debian's package is enough, installed or only unpacked (`make nginx`). Without it the bench says so and goes on.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_tests::built;

/// A running nginx of one process; it is killed when dropped.
pub(crate) struct Nginx {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Nginx {
    /// In front of the server at `upstream`, `host:port`, without buffering of answers; with another size of its one
    /// read buffer if that is given (its own is 4 KiB). None without nginx on this machine.
    pub(crate) fn start(upstream: &str, buffer: Option<&str>) -> Option<Self> {
        let program = program()?;
        let folder = tempfile::tempdir().unwrap();
        // nginx takes no port 0. Free a moment ago is free enough on a machine that runs a bench.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let path = folder.path().display();
        let buffer =
            buffer.map(|size| format!("proxy_buffer_size {size}; proxy_buffers 4 {size};")).unwrap_or_default();
        let config = format!(
            "daemon off; master_process off; worker_processes 1; pid {path}/pid; error_log {path}/error.log;
             events {{ worker_connections 64; }}
             http {{
               access_log off; gzip off; tcp_nodelay on; keepalive_requests 1000000;
               client_body_temp_path {path}/a; proxy_temp_path {path}/b; fastcgi_temp_path {path}/c;
               uwsgi_temp_path {path}/d; scgi_temp_path {path}/e;
               upstream server {{ server {upstream}; keepalive 16; }}
               server {{
                 listen 127.0.0.1:{port};
                 location / {{
                   proxy_pass http://server; proxy_http_version 1.1; proxy_set_header Connection '';
                   proxy_buffering off; {buffer}
                 }}
               }}
             }}"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, config).unwrap();
        let child = Command::new(program)
            .args(["-p", &path.to_string(), "-e", &format!("{path}/error.log"), "-c"])
            .arg(&file)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let nginx = Self { child, port, _folder: folder };
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(10), "nginx does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(nginx)
    }

    /// `host:port`
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where nginx is: unpacked in the target folder, or installed.
fn program() -> Option<PathBuf> {
    let folders =
        [built::target().join("nginx/usr/sbin"), "/usr/sbin".into(), "/usr/local/sbin".into(), "/usr/bin".into()];
    folders.into_iter().map(|folder| folder.join("nginx")).find(|path| path.exists())
}
