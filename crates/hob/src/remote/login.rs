//! `hob login` and `hob logout`: the server and the token of a user, in a file that only this user can read.
#![expect(clippy::print_stdout, reason = "output of a command")]

use std::env;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use console::Term;
use hob_units::Secret;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{Remote, server_url, wait};
use crate::cli::LoginArgs;
use crate::exit::Exit;

/// A server and how to talk to it.
#[derive(Debug)]
pub(super) struct Login {
    pub(super) server: Url,
    pub(super) token: Option<Secret>,
    pub(super) ca: Option<PathBuf>,
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct LoginFile {
    server: String,
    token: Option<String>,
    ca: Option<PathBuf>,
}

/// Who a token belongs to.
#[derive(Deserialize)]
struct Caller {
    name: String,
    scopes: Vec<String>,
}

pub(crate) fn log_in(arguments: &LoginArgs) -> Result<Exit> {
    let server = server_url(&arguments.server)?;
    let given = arguments.token.clone().filter(|token| !token.reveal().is_empty());
    let token = match given {
        Some(token) => Some(token),
        None => ask_for_token()?,
    };
    // The file is used from other folders.
    let ca = arguments
        .ca
        .as_deref()
        .map(|path| path.canonicalize().with_context(|| format!("cannot read {}", path.display())));
    let login = Login { server, token, ca: ca.transpose()? };
    let remote = Remote::new(login.server.clone(), login.token.clone(), login.ca.as_deref())?;
    let caller: Caller = wait(remote.get(&["caller"]))?;
    let path = path()?;
    login.save(&path)?;
    println!(
        "Signed in to {} as {} ({}). Saved in {}.",
        login.server,
        caller.name,
        caller.scopes.join(", "),
        path.display()
    );
    Ok(Exit::Clean)
}

pub(crate) fn log_out() -> Result<Exit> {
    let path = path()?;
    match fs::remove_file(&path) {
        Ok(()) => println!("Signed out. The token stays valid until it is revoked."),
        Err(error) if error.kind() == ErrorKind::NotFound => println!("Not signed in."),
        Err(error) => return Err(error).with_context(|| format!("cannot delete {}", path.display())),
    }
    Ok(Exit::Clean)
}

/// From the terminal without showing it, or the first line of standard input. `None` if it is empty: a server on loopback
/// may need none.
fn ask_for_token() -> Result<Option<Secret>> {
    let line = if io::stdin().is_terminal() {
        let terminal = Term::stderr();
        terminal.write_str("API token: ").and_then(|()| terminal.read_secure_line())
    } else {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    };
    let line = line.context("cannot read the token")?;
    let token = line.trim();
    Ok((!token.is_empty()).then(|| Secret::new(token)))
}

impl Login {
    pub(super) fn load() -> Result<Option<Login>> {
        // Without a home folder there is no file.
        let Ok(path) = path() else { return Ok(None) };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let mode = fs::metadata(&path)?.permissions().mode();
        ensure!(
            mode & 0o077 == 0,
            "other users can read the token in {0}; run `chmod 600 {0}`, or `hob logout`",
            path.display()
        );
        // The error of the parser would show the line with the token.
        let file = toml::from_str::<LoginFile>(&text).ok();
        let read = file.and_then(|file| {
            Some(Login {
                server: server_url(&file.server).ok()?,
                token: file.token.map(Secret::new),
                ca: file.ca,
            })
        });
        let login =
            read.with_context(|| format!("{} is damaged; run `hob logout` and `hob login`", path.display()))?;
        Ok(Some(login))
    }

    /// Replaces the file. It never has other permissions, and is never incomplete.
    fn save(&self, path: &Path) -> Result<()> {
        let token = self.token.as_ref().map(|token| token.reveal().to_owned());
        let file = LoginFile { server: self.server.to_string(), token, ca: self.ca.clone() };
        let text = toml::to_string(&file)?;
        let written = || -> io::Result<()> {
            if let Some(folder) = path.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            }
            let new = path.with_extension(format!("{}.new", std::process::id()));
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, path)
        };
        written().with_context(|| format!("cannot write {}", path.display()))
    }
}

/// `hob/login.toml` in the folder for configuration of this user.
fn path() -> Result<PathBuf> {
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
    let base = base.context("no folder for the configuration of this user: set HOME or XDG_CONFIG_HOME")?;
    Ok(base.join("hob/login.toml"))
}
