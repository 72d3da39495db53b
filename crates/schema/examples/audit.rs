//! Audits a server with schema files: `cargo run -p hob-schema --example audit -- URL FILE…`.
//!
//! With `RATE=20000` in the environment it reads at most so many keys a second; `LAYOUT=tagged` reads a
//! Cluster's keys.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::Path;
use std::process::ExitCode;

use hob_schema::lint::Severity;
use hob_schema::live::{AuditOptions, Pace, audit};
use hob_schema::{Catalog, Error, Layout, Schema};

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(url) = arguments.next() else {
        eprintln!("usage: audit URL FILE…");
        return ExitCode::from(2);
    };
    match run(&url, arguments.collect()).await {
        Ok(Some(Severity::Error)) => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

async fn run(url: &str, files: Vec<String>) -> Result<Option<Severity>, Error> {
    let mut schemas = Vec::new();
    for file in files {
        let mut schema = Schema::load(Path::new(&file))?;
        schema.apply_env(&|name| std::env::var(name).ok())?;
        schemas.push(schema);
    }
    let layout = if std::env::var("LAYOUT").is_ok_and(|layout| layout == "tagged") {
        Layout::Tagged
    } else {
        Layout::Plain
    };
    let catalog = Catalog::new(schemas, layout)?;
    let rate = std::env::var("RATE").ok().and_then(|rate| rate.parse().ok());
    let pace = rate.map_or(Pace::Full, Pace::KeysPerSecond);
    let report = audit(url, &catalog, AuditOptions { pace }, &mut |_| {}).await?;
    println!("{}", report.text());
    Ok(report.worst())
}
