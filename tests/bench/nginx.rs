//! nginx as the baseline: a plain reverse proxy that passes the bytes on, or a server of files.
//!
//! Debian's package is sufficient, installed or only unpacked (`make nginx`). Without it, the bench prints a note and
//! continues.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_tests::built;

/// A running nginx with one process, killed on drop.
pub(crate) struct Nginx {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Nginx {
    /// Starts nginx in front of the server at `upstream`, `host:port`. `tuned` turns on what makes it pass a large body on with
    /// the least CPU time: connections that stay open, no response buffering, a buffer of 64 KiB. By default it buffers the
    /// response, in a file if the client is slower than the server. Returns none if the machine has no nginx.
    pub(crate) fn start(upstream: &str, tuned: bool) -> Option<Self> {
        let location = match tuned {
            true => {
                "proxy_pass http://server; proxy_http_version 1.1; proxy_set_header Connection '';
                 proxy_buffering off; proxy_buffer_size 64k; proxy_buffers 4 64k;"
            }
            false => "proxy_pass http://server;",
        };
        let keepalive = if tuned { "keepalive 16;" } else { "" };
        Self::run(&format!("upstream server {{ server {upstream}; {keepalive} }}"), location)
    }

    /// Starts nginx in front of the files of a folder. `tuned` turns on what makes it serve files with the least CPU time;
    /// its default settings copy them. Returns none if the machine has no nginx.
    pub(crate) fn serving(folder: &Path, tuned: bool) -> Option<Self> {
        let tuned = if tuned { "sendfile on; tcp_nopush on; open_file_cache max=16;" } else { "" };
        Self::run(tuned, &format!("root {};", folder.display()))
    }

    fn run(http: &str, location: &str) -> Option<Self> {
        let program = program()?;
        let folder = tempfile::tempdir().unwrap();
        // nginx does not accept port 0, so this uses a port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let path = folder.path().display();
        let config = format!(
            "daemon off; master_process off; worker_processes 1; pid {path}/pid; error_log {path}/error.log;
             events {{ worker_connections 64; }}
             http {{
               access_log off; gzip off; tcp_nodelay on; keepalive_requests 1000000;
               client_body_temp_path {path}/a; proxy_temp_path {path}/b; fastcgi_temp_path {path}/c;
               uwsgi_temp_path {path}/d; scgi_temp_path {path}/e;
               {http}
               server {{
                 listen 127.0.0.1:{port};
                 location / {{ {location} }}
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

/// Returns the nginx program: unpacked in the target folder, or installed.
fn program() -> Option<PathBuf> {
    let folders =
        [built::target().join("nginx/usr/sbin"), "/usr/sbin".into(), "/usr/local/sbin".into(), "/usr/bin".into()];
    folders.into_iter().map(|folder| folder.join("nginx")).find(|path| path.exists())
}
