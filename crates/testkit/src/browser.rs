//! A headless Chromium, driven through chromedriver.

mod chrome;
pub mod page;
pub(crate) mod readable;

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use fantoccini::wd::Capabilities;
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;

pub use self::chrome::{console_errors, reduce_motion, set_view};

use crate::process::Process;
use crate::process::port::{Port, PortTaken, with_free_ports};
use crate::process::program;
use crate::wait::wait_until;

/// Chromium does not run as root with its sandbox. The other flags keep it off the network.
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

/// The preferred colour scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorScheme {
    Light,
    Dark,
}

/// Whether JavaScript is enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JavaScript {
    On,
    Off,
}

/// The properties of a browser window.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub width: u32,
    pub height: u32,
    pub scheme: ColorScheme,
    pub scripts: JavaScript,
}

impl Default for Window {
    fn default() -> Self {
        Self { width: 1280, height: 800, scheme: ColorScheme::Light, scripts: JavaScript::On }
    }
}

/// A chromedriver process.
#[derive(Debug)]
pub struct Browser {
    // Dropped first: the process ends before its port and its folder are released.
    process: Process,
    port: Port,
    chromium: PathBuf,
    profiles: AtomicUsize,
    folder: TempDir,
}

impl Browser {
    pub fn start() -> Self {
        with_free_ports(Self::launch)
    }

    /// The address of chromedriver: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.number())
    }

    /// Opens a window with a new profile. It closes with [`Client::close`] or with the browser.
    pub async fn open(&self, window: Window) -> Client {
        let profile = self.folder.path().join(self.profiles.fetch_add(1, Ordering::Relaxed).to_string());
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities(&self.chromium, &profile, window))
            .connect(&self.url())
            .await;
        client.unwrap_or_else(|error| panic!("cannot open a browser window: {error}\n{}", self.process.log()))
    }

    fn launch() -> Result<Self, PortTaken> {
        let folder = TempDir::new().unwrap_or_else(|error| panic!("cannot create a folder: {error}"));
        let chromium = program::find(&["chromium", "google-chrome", "chromium-browser"], "chromium");
        let port = Port::reserve();
        let mut command = Command::new(program::find(&["chromedriver"], "chromium-driver"));
        command.arg(format!("--port={}", port.number())).env("TMPDIR", folder.path());
        let process = Process::start(folder.path(), command);
        let browser = Self { process, port, chromium, profiles: AtomicUsize::new(0), folder };
        browser.wait_until_ready()?;
        Ok(browser)
    }

    fn wait_until_ready(&self) -> Result<(), PortTaken> {
        wait_until(format_args!("chromedriver on port {} to be ready", self.port.number()), || {
            if let Some(status) = self.process.ended() {
                let log = self.process.log();
                assert!(log.contains("ddress already in use"), "chromedriver ended ({status}):\n{log}");
                return Some(Err(PortTaken));
            }
            let is_started = self.process.log().contains("started successfully");
            (is_started && TcpStream::connect((Ipv4Addr::LOCALHOST, self.port.number())).is_ok())
                .then_some(Ok(()))
        })
    }
}

/// Writes a screenshot of the window to `target/screenshots/NAME.png`, and returns its path.
pub async fn screenshot(client: &Client, name: &str) -> PathBuf {
    let png = client.screenshot().await.unwrap_or_else(|error| panic!("cannot take a screenshot: {error}"));
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/screenshots"));
    fs::create_dir_all(folder).unwrap_or_else(|error| panic!("cannot create {}: {error}", folder.display()));
    let file = folder.join(format!("{name}.png"));
    fs::write(&file, png).unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
    file
}

fn capabilities(chromium: &Path, profile: &Path, window: Window) -> Capabilities {
    let mut flags: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
    flags.push(format!("--window-size={},{}", window.width, window.height));
    flags.push(format!("--user-data-dir={}", profile.display()));
    if window.scheme == ColorScheme::Dark {
        flags.push("--blink-settings=preferredColorScheme=0".to_owned());
    }
    let mut preferences = json!({});
    if window.scripts == JavaScript::Off {
        preferences["profile.managed_default_content_settings.javascript"] = json!(2);
    }
    let options = json!({ "binary": chromium, "args": flags, "prefs": preferences });
    let mut capabilities = Capabilities::new();
    capabilities.insert("browserName".to_owned(), Value::from("chrome"));
    capabilities.insert("goog:chromeOptions".to_owned(), options);
    capabilities.insert("goog:loggingPrefs".to_owned(), json!({ "browser": "SEVERE" }));
    capabilities
}
