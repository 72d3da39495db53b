//! `hob config`.
#![expect(clippy::print_stdout, reason = "the answer of a command")]

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use hob_service::config::{Origin, Setting};
use toml::de::{DeTable, DeValue};

use super::example::example;
use super::{Loaded, kinds, load};
use crate::cli::ConfigCommand;
use crate::exit::Exit;

/// The maximum width of the first column. A longer setting does not move the origins of the other settings to the
/// right.
const MAX_WIDTH: usize = 60;

pub(crate) fn run(command: &ConfigCommand, file: Option<&Path>) -> Result<Exit> {
    match command {
        ConfigCommand::Check => {
            let loaded = load(file)?;
            loaded.check_all()?;
            return Ok(check(&loaded));
        }
        ConfigCommand::Show => show(&load(file)?)?,
        ConfigCommand::Example => print!("{}", example()),
    }
    Ok(Exit::Clean)
}

fn check(loaded: &Loaded) -> Exit {
    match loaded.path() {
        Some(path) => println!("{}: OK", path.display()),
        None => println!("no hob.toml in this folder; defaults and environment: OK"),
    }
    for variable in loaded.unknown_variables() {
        println!("warning: unknown environment variable {variable}");
    }
    for contradiction in loaded.contradictions() {
        println!("warning: {contradiction}");
    }
    let is_clean = loaded.unknown_variables().is_empty() && loaded.contradictions().is_empty();
    if is_clean { Exit::Clean } else { Exit::Warnings }
}

fn show(loaded: &Loaded) -> Result<()> {
    let lines = loaded.path().map(lines_of_settings).unwrap_or_default();
    for section in kinds() {
        println!("[{}]", section.name);
        let settings = section.settings(&loaded.layers)?;
        print_aligned(settings.iter().map(|setting| {
            let line = lines.get(&(section.name.to_owned(), setting.name.clone()));
            (assignment(setting), origin(loaded, setting, line.copied()))
        }));
        println!();
    }
    println!("# Environment variables without a setting in hob.toml");
    print_aligned(loaded.environment.without_setting().into_iter().map(|(name, text)| match text {
        Some(text) => (format!("# {name} = {text:?}"), format!("environment {name}")),
        None => (format!("# {name} is not set"), "default".to_owned()),
    }));
    Ok(())
}

fn print_aligned(rows: impl Iterator<Item = (String, String)>) {
    let rows: Vec<(String, String)> = rows.collect();
    let width = rows.iter().map(|(text, _)| text.chars().count()).max().unwrap_or(0).min(MAX_WIDTH);
    for (text, origin) in rows {
        println!("{text:width$}  # {origin}");
    }
}

fn assignment(setting: &Setting) -> String {
    match &setting.value {
        Some(value) => format!("{} = {value}", setting.name),
        // TOML has no null.
        None => format!("# {} is not set", setting.name),
    }
}

fn origin(loaded: &Loaded, setting: &Setting, line: Option<usize>) -> String {
    match (&setting.origin, line) {
        (Origin::Default, _) => "default".to_owned(),
        (Origin::File(path), Some(line)) => format!("{}:{line}", path.display()),
        (Origin::File(path), None) => path.display().to_string(),
        (Origin::Variable(name), _) => format!("environment {}", loaded.environment.source(name)),
    }
}

/// The line of each setting in the file, by section and key. Empty if the file has changed and cannot be read any more.
fn lines_of_settings(path: &Path) -> BTreeMap<(String, String), usize> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let Ok(table) = DeTable::parse(&text) else { return BTreeMap::new() };
    let line_at = |offset: usize| 1 + text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count();
    let mut lines = BTreeMap::new();
    for (section, value) in table.get_ref() {
        let DeValue::Table(settings) = value.get_ref() else { continue };
        for key in settings.keys() {
            let name = (section.get_ref().to_string(), key.get_ref().to_string());
            lines.insert(name, line_at(key.span().start));
        }
    }
    lines
}
