//! `hob config`.
#![expect(clippy::print_stdout, reason = "the answer of a command")]

use std::path::Path;

use anyhow::Result;
use hob_service::config::{Origin, Setting};

use super::example::example;
use super::{Loaded, kinds, load};
use crate::cli::ConfigCommand;
use crate::exit::Exit;

pub(crate) fn run(command: &ConfigCommand, file: Option<&Path>) -> Result<Exit> {
    match command {
        ConfigCommand::Check => check(&load(file)?),
        ConfigCommand::Show => show(&load(file)?)?,
        ConfigCommand::Example => print!("{}", example()),
    }
    Ok(Exit::Clean)
}

fn check(loaded: &Loaded) {
    match loaded.path() {
        Some(path) => println!("{} is well", path.display()),
        None => println!("there is no hob.toml here; the defaults and the environment are well"),
    }
}

fn show(loaded: &Loaded) -> Result<()> {
    for section in kinds() {
        println!("[{}]", section.name);
        let settings = section.settings(&loaded.layers)?;
        let lines: Vec<(String, &Setting)> =
            settings.iter().map(|setting| (assignment(setting), setting)).collect();
        let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0).min(60);
        for (line, setting) in &lines {
            println!("{line:width$}  # {}", setting.origin);
        }
        println!();
    }
    Ok(())
}

fn assignment(setting: &Setting) -> String {
    match &setting.value {
        Some(value) => format!("{} = {value}", setting.name),
        // TOML has no word for nothing.
        None if setting.origin == Origin::Default => format!("# {} is not set", setting.name),
        None => format!("# {} is set to nothing", setting.name),
    }
}
