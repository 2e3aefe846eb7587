//! `weir-apiserver`: the server as a process, for the demo and benches. It prints its URL and serves until it receives
//! SIGINT or SIGTERM.

use std::error::Error;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use weir_apiserver::{ApiServer, Gzip};

/// An in-memory Kubernetes API server.
#[derive(Debug, Parser)]
#[command(name = "weir-apiserver", version)]
struct Flags {
    /// Port to listen on; 0 selects a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Address to listen on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind_address: IpAddr,
    /// Initial objects: YAML with any number of documents, or JSON. May be repeated; `-` is the standard input.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    load: Vec<PathBuf>,
    /// Events kept per resource.
    #[arg(long, default_value_t = 10_000)]
    history: usize,
    /// When responses are gzipped: large, always or never.
    #[arg(long, default_value = "large", value_parser = parse_gzip)]
    gzip: Gzip,
    /// A file whose bytes answer every request for a path, for throughput measurements. May be repeated.
    #[arg(long, num_args = 3, value_names = ["PATH", "MEDIA-TYPE", "FILE"])]
    fix: Vec<String>,
    /// Certificate chain (PEM). With it the server speaks HTTPS.
    #[arg(long, requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Private key (PEM).
    #[arg(long, requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    let flags = match Flags::try_parse() {
        Ok(flags) => flags,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 64 } else { 0 });
        }
    };
    match run(flags).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut text = error.to_string();
            let mut source = error.source();
            while let Some(cause) = source {
                text.push_str(&format!(": {cause}"));
                source = cause.source();
            }
            let _ = writeln!(std::io::stderr(), "weir-apiserver: {text}");
            ExitCode::FAILURE
        }
    }
}

async fn run(flags: Flags) -> Result<(), Box<dyn Error>> {
    let mut builder = ApiServer::builder()
        .address(SocketAddr::new(flags.bind_address, flags.port))
        .history(flags.history)
        .gzip(flags.gzip);
    if let (Some(certificates), Some(key)) = (&flags.tls_cert_file, &flags.tls_private_key_file) {
        builder = builder.tls(read(certificates)?, read(key)?);
    }
    let server = builder.start().await?;
    for file in &flags.load {
        let text = read(file)?;
        server
            .store()
            .load(&text)
            .map_err(|error| Context(format!("cannot load {}", file.display()), Box::new(error)))?;
    }
    for fixed in flags.fix.chunks_exact(3) {
        if let [path, media, file] = fixed {
            let body = std::fs::read(file).map_err(|error| Context(format!("cannot read {file}"), Box::new(error)))?;
            server.fix(path, media.parse()?, body);
        }
    }
    let mut out = std::io::stdout();
    writeln!(out, "{}", server.url())?;
    out.flush()?;
    ended().await?;
    server.stop().await;
    Ok(())
}

/// Waits for SIGINT or SIGTERM.
async fn ended() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, Context> {
    let text =
        if path == Path::new("-") { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(path) };
    text.map_err(|error| Context(format!("cannot read {}", path.display()), Box::new(error)))
}

/// An error with its context.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Context(String, #[source] Box<dyn Error + Send + Sync>);

fn parse_gzip(text: &str) -> Result<Gzip, String> {
    match text {
        "large" => Ok(Gzip::Large),
        "always" => Ok(Gzip::Always),
        "never" => Ok(Gzip::Never),
        _ => Err("one of large, always, never".to_owned()),
    }
}
