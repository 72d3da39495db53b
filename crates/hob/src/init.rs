//! `hob init`: writes a first `hob.toml`, and an admin token beside it.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "output of a command")]

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead as _, ErrorKind, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hob_database::private_file;
use hob_web::{Registration, random_secret};

use crate::cli::service_names;
use crate::config;
use crate::exit::Exit;
use crate::services;

const TOKEN_FILE: &str = "hob-admin-token";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The file to write; must not exist [default: that of --config, or hob.toml]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The services of this node, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_name = "SERVICES", value_parser = service_names())]
    only: Option<Vec<String>>,
    /// Redis URL: redis://, rediss://, redis+cluster://, redis+sentinel:// or embedded:// [default: embedded://]
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// SQLite file or postgres:// URL [default: hob-data/hob.db]
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Address of the API and the console [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The file for a new admin token; an existing one is used as it is [default: hob-admin-token]
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
}

/// What the file will say. An empty text is the default of the setting.
struct Answers {
    services: String,
    redis: String,
    database: String,
    listen: String,
    admin_token_file: PathBuf,
}

/// `chosen` is the file that the other commands would read.
pub(crate) fn run(options: &Options, chosen: Option<&Path>) -> Result<Exit> {
    let out = options.out.as_deref().or(chosen).unwrap_or(Path::new(config::DEFAULT_FILE));
    if out.try_exists()? {
        bail!("{} exists; edit it, or write another file with --out", out.display());
    }
    let answers = Answers::get(options, out)?;
    write_token(&answers.admin_token_file)?;
    let token = fs::canonicalize(&answers.admin_token_file)?;
    write_new(out, &answers.text(&token))?;
    if let Err(error) = config::load(Some(out)) {
        // Nothing that `hob serve` refuses is left behind. The token is kept: it is valid.
        fs::remove_file(out)?;
        return Err(error.into());
    }
    println!("{} is written. The admin token is in {}.", out.display(), token.display());
    let flag = if out == Path::new(config::DEFAULT_FILE) {
        String::new()
    } else {
        format!(" --config {}", out.display())
    };
    println!("Next: hob doctor{flag}, then hob serve{flag}");
    Ok(Exit::Clean)
}

impl Answers {
    fn get(options: &Options, out: &Path) -> Result<Self> {
        let all = services::ALL.iter().map(Registration::name).collect::<Vec<_>>().join(",");
        let only = options.only.as_ref().map(|names| names.join(","));
        let services = answer(only.as_deref(), "Services of this node", &all)?;
        let redis = answer(options.redis.as_deref(), "Redis URL", "embedded://")?;
        let database =
            answer(options.database.as_deref(), "SQLite file or postgres:// URL", "hob-data/hob.db")?;
        let listen =
            answer(options.listen.as_deref(), "Address of the API and the console", "127.0.0.1:7070")?;
        let beside = out.with_file_name(TOKEN_FILE);
        Ok(Self {
            services: if services == all { String::new() } else { services },
            redis: if redis == "embedded://" { String::new() } else { redis },
            database,
            listen,
            admin_token_file: options.admin_token_file.clone().unwrap_or(beside),
        })
    }

    fn text(&self, token: &Path) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let mut text = "# Everything else has its default: `hob config example` prints all settings, `hob config check` finds \
                        mistakes.\n"
            .to_owned();
        if !self.services.is_empty() {
            let names: Vec<String> = self.services.split(',').map(|name| quoted(name.trim())).collect();
            let _ = write!(text, "\n[node]\nservices = [{}]\n", names.join(", "));
        }
        let redis = quoted(&self.redis);
        text += "\n# For fast-changing state that can be rebuilt. Without an address, the embedded engine is used.\n[redis]\n";
        let _ = if self.redis.is_empty() {
            writeln!(text, "# url = \"redis://127.0.0.1:6379\"")
        } else {
            writeln!(text, "url = {redis}")
        };
        let _ = write!(
            text,
            "\n# For everything that must not be lost.\n[database]\nurl = {}\n\n[server]\nlisten = {}\nadmin_token = {}\n",
            quoted(&self.database),
            quoted(&self.listen),
            quoted(&format!("file:{}", token.display())),
        );
        text
    }
}

/// The value of an option, or the answer to a question on a terminal, or the default.
fn answer(option: Option<&str>, question: &str, default: &str) -> Result<String> {
    if let Some(option) = option {
        return Ok(option.to_owned());
    }
    if !io::stdin().is_terminal() {
        return Ok(default.to_owned());
    }
    eprint!("{question} [{default}]: ");
    io::stderr().flush()?;
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line)? == 0 {
        bail!("no answer; nothing was written");
    }
    let line = line.trim();
    Ok(if line.is_empty() { default } else { line }.to_owned())
}

/// A token in an existing file is kept, so that other nodes can share it.
fn write_token(path: &Path) -> Result<()> {
    match write_new(path, &format!("{}\n", random_secret())) {
        Err(error) if is_existing(&error) => Ok(()),
        written => written,
    }
}

/// Writes a file that only its owner can read, and that must not exist.
fn write_new(path: &Path, text: &str) -> Result<()> {
    let mut file = private_file::options()
        .write(true)
        .create_new(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

fn is_existing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::AlreadyExists)
}
