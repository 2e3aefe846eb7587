//! The `weir` program: runs a subcommand and maps its result to an exit code.

use std::io::Write as _;
use std::process::ExitCode;

use weir::config::{Command, parse};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Exit code of a usage or configuration error, as `EX_USAGE` in sysexits.h.
const USAGE: u8 = 64;
/// Exit code of `weir status` for a daemon that answers, and is not ready, offline or degraded.
const NOT_WELL: u8 = 2;

fn main() -> ExitCode {
    let command = match parse(std::env::args_os()) {
        Ok(command) => command,
        Err(usage) => {
            if usage.code == 0 {
                let _ = std::io::stdout().write_all(usage.message.as_bytes());
            } else {
                eprint!("{}", usage.message);
            }
            return ExitCode::from(usage.code);
        }
    };
    match command {
        Command::Serve(config) => exit(weir::app::serve(*config), 1),
        Command::Run(flags) => match weir::cli::run(&flags) {
            Ok(summary) if summary.failed == 0 => ExitCode::SUCCESS,
            Ok(_) => ExitCode::FAILURE,
            Err(error) => exit(Err::<(), _>(error), 1),
        },
        Command::Status(flags) => match weir::cli::status(&flags) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(NOT_WELL),
            Err(error) => exit(Err::<(), _>(error), 1),
        },
        Command::New(flags) => exit(weir::cli::new(&flags), 1),
        Command::Test(flags) => passed(weir::cli::test(&flags)),
        Command::Dev(flags) => passed(weir::cli::dev(&flags)),
        Command::Record(flags) => exit(weir::cli::record(&flags), 1),
        Command::Inspect(flags) => exit(weir::cli::inspect(&flags), 1),
        Command::Wit(flags) => exit(weir::cli::wit(&flags), 1),
        Command::Push(flags) => exit(weir::cli::push(&flags), 1),
        Command::Pull(flags) => exit(weir::cli::pull(&flags), 1),
        Command::Save(flags) => exit(weir::cli::save(&flags), 1),
        Command::Load(flags) => exit(weir::cli::load(&flags), 1),
        Command::PullChild => exit(weir_registry::pull_child(), 1),
        Command::Diff(flags) => match weir::cli::diff(&flags) {
            Err(error) => exit(Err::<(), _>(error), USAGE),
            equal => passed(equal),
        },
        Command::Explain(flags) => exit(weir::cli::explain(&flags), 1),
        Command::Check(flags) => exit(weir::cli::check(&flags), USAGE),
        Command::DevDaemon(config) => {
            weir::cli::end_with_parent();
            exit(weir::app::serve(*config), 1)
        }
        Command::Compile(flags) => {
            let compiled = weir_runtime::Compiler::run_child(&flags.cache_dir, flags.memory);
            let code = compiled.as_ref().err().map_or(0, weir_runtime::ChildError::exit_code);
            exit(compiled, code)
        }
    }
}

/// The exit code of a command that runs test cases.
fn passed<E: std::error::Error + 'static>(result: Result<bool, E>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => exit(Err::<(), _>(error), 1),
    }
}

fn exit<E: std::error::Error + 'static>(result: Result<(), E>, code: u8) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("weir: {}", weir_upstream::error_report(&error));
    ExitCode::from(code)
}
