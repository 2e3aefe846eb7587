//! The `weir` program: subcommands and exit codes, nothing else.

use std::process::ExitCode;

use weir::config::{Command, parse};

/// Bad usage or configuration.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let command = match parse(std::env::args_os()) {
        Ok(command) => command,
        Err(refusal) => {
            if refusal.code == 0 {
                print!("{}", refusal.message);
            } else {
                eprint!("{}", refusal.message);
            }
            return ExitCode::from(refusal.code);
        }
    };
    match command {
        Command::Serve(config) => end(weir::app::serve(*config), 1),
        Command::Run(flags) => match weir::cli::run(&flags) {
            Ok(ran) if ran.failed == 0 => ExitCode::SUCCESS,
            Ok(_) => ExitCode::FAILURE,
            Err(error) => end(Err::<(), _>(error), 1),
        },
        Command::Check(flags) => end(weir::cli::check(&flags), USAGE),
        Command::Compile(flags) => end(weir_runtime::compile_child(&flags.cache_dir), 1),
    }
}

fn end<E: std::error::Error>(result: Result<(), E>, code: u8) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("weir: {}", weir_upstream::in_full(&error));
    ExitCode::from(code)
}
