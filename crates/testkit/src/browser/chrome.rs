//! Commands of chromedriver that are not part of WebDriver.

use fantoccini::Client;
use fantoccini::wd::WebDriverCompatibleCommand;
use http::Method;
use serde_json::{Value, json};
use url::{ParseError, Url};

use super::ColorScheme;

/// A command of chromedriver: its path below the session, and its parameters.
#[derive(Debug)]
struct ChromeCommand {
    path: &'static str,
    parameters: Value,
}

impl WebDriverCompatibleCommand for ChromeCommand {
    fn endpoint(&self, base_url: &Url, session_id: Option<&str>) -> Result<Url, ParseError> {
        base_url.join(&format!("session/{}/{}", session_id.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.parameters.to_string()))
    }
}

/// The errors in the console of the browser since the last call: of scripts, of requests, and of the content security policy.
pub async fn console_errors(client: &Client) -> Vec<String> {
    let entries = execute(client, "se/log", json!({ "type": "browser" })).await;
    let entries = entries.as_array().cloned().unwrap_or_default();
    entries.iter().map(|entry| entry["message"].to_string()).collect()
}

/// Changes the size of the page and the preferred colour scheme. A page can be narrower than a window of Chromium.
pub async fn set_view(client: &Client, width: u32, height: u32, scheme: ColorScheme) {
    let scheme = match scheme {
        ColorScheme::Light => "light",
        ColorScheme::Dark => "dark",
    };
    let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
    let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
    for (command, parameters) in
        [("Emulation.setDeviceMetricsOverride", size), ("Emulation.setEmulatedMedia", features)]
    {
        execute(client, "goog/cdp/execute", json!({ "cmd": command, "params": parameters })).await;
    }
}

/// Prefers reduced motion, and the default colour scheme.
pub async fn reduce_motion(client: &Client) {
    let features = json!({ "features": [{ "name": "prefers-reduced-motion", "value": "reduce" }] });
    let command = json!({ "cmd": "Emulation.setEmulatedMedia", "params": features });
    execute(client, "goog/cdp/execute", command).await;
}

async fn execute(client: &Client, path: &'static str, parameters: Value) -> Value {
    let answer = client.issue_cmd(ChromeCommand { path, parameters }).await;
    answer.unwrap_or_else(|error| panic!("chromedriver rejected {path}: {error}"))
}
