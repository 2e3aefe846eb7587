//! The `weir-operator` program.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use kube::CustomResourceExt as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use weir_operator::api::YurtIngress;
use weir_operator::config::{Command, CommandLine, RemoveFinalizersFlags, ServeFlags};
use weir_operator::template::{self, yaml};
use weir_operator::uninstall::{self, RemovalError};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Exit code of a usage error, as `EX_USAGE` in sysexits.h.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    let result = match line.command {
        Command::Serve(flags) => serve(*flags),
        Command::Crd => print(yaml::write(&YurtIngress::crd()).map_err(|error| error.to_string())),
        Command::Render(flags) => print(template::render(&flags)),
        Command::RemoveFinalizers(flags) => remove_finalizers(&flags),
        Command::Version => print(Ok(CommandLine::version())),
        Command::Completion(flags) => print(Ok(flags.script())),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("weir-operator: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn serve(flags: ServeFlags) -> Result<(), String> {
    let own = if flags.verbose { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let levels = Targets::new().with_default(LevelFilter::OFF).with_target("weir_operator", own);
    let log = tracing_subscriber::registry().with(levels);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    if flags.log_json {
        log.with(lines.json()).init();
    } else {
        log.with(lines.with_ansi(false)).init();
    }
    runtime()?.block_on(weir_operator::app::serve(flags)).map_err(|error| error.to_string())
}

fn remove_finalizers(flags: &RemoveFinalizersFlags) -> Result<(), String> {
    let removal = runtime()?.block_on(uninstall::remove_finalizers(flags));
    if let Ok(done) | Err(RemovalError::Remaining(done, _)) = &removal {
        print(Ok(done.to_string()))?;
    }
    removal.map(drop).map_err(|error| error.to_string())
}

/// One thread: the work is waiting.
fn runtime() -> Result<tokio::runtime::Runtime, String> {
    // kube asks for a default. There is one provider, which was compiled in.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("the runtime: {error}"))
}

fn print(text: Result<String, String>) -> Result<(), String> {
    let text = text?;
    // The reader of the output may close the pipe early.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}
