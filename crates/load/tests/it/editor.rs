//! The editor of plans with files: they are checked with the plan, and stay in the form until they are saved.

use hob_testkit::page::{fill, find, press, wait_for_text};
use hob_testkit::{Browser, JavaScript, Window};
use serde_json::{Value, json};

use crate::api::Site;
use crate::kit::plan;

/// A plan that reads its users from `users.csv`.
fn plan_with_file(site: &Site) -> String {
    let source = plan(&site.server.url(""), 10, "1s");
    source.replace("users = [{ login = \"ann\" }, { login = \"bob\" }]", "csv_file = \"users.csv\"")
}

#[tokio::test]
async fn plan_is_checked_with_its_files() {
    let site = Site::open().await;
    let source = plan_with_file(&site);
    let check = async |fields: &[(&str, &str)]| -> Value {
        let form = [&[("source", source.as_str()), ("format", "toml")], fields].concat();
        let response = site.app.submit("/load/plans/check", &form).await;
        assert_eq!(response.status, 200, "{}", response.text());
        response.json()
    };
    let says = |check: &Value, words: &str| check["message"].as_str().unwrap().contains(words);
    let line = source.lines().position(|line| line.contains("users.csv")).unwrap() + 1;

    let missing = check(&[]).await;
    assert!(says(&missing, "no file \"users.csv\"") && missing["line"] == line, "{missing}");
    let valid = check(&[("file_name", "users.csv"), ("file", "login\ncarl\n")]).await;
    assert!(says(&valid, "The plan is valid") && valid["line"].is_null(), "{valid}");
    let bad_name = check(&[("file_name", "a/users.csv"), ("file", "login\ncarl\n")]).await;
    assert!(says(&bad_name, "a file name has"), "{bad_name}");

    let draft = json!({ "source": source, "files": { "users.csv": "login\ncarl\n", "more.csv": "a\n1\n" } });
    assert_eq!(site.app.post("/api/v1/load/plans", &draft).await.status, 201);
    // The files of the opened version are known without being sent again; empty content removes one.
    let saved = check(&[("plan", "1"), ("version", "1")]).await;
    assert!(saved["line"].is_null(), "{saved}");
    let removed = check(&[("plan", "1"), ("version", "1"), ("file_name", "users.csv"), ("file", "")]).await;
    assert!(says(&removed, "no file \"users.csv\""), "{removed}");
}

#[tokio::test]
async fn unsaved_file_stays_in_the_form() {
    let site = Site::open().await;
    let source = plan_with_file(&site);
    let browser = Browser::start();
    for (scripts, id) in [(JavaScript::On, 1), (JavaScript::Off, 2)] {
        let client = browser.open(Window { scripts, height: 1600, ..Window::default() }).await;
        client.goto(&site.app.url("/load/plans/new")).await.unwrap();
        fill(&client, "textarea[name=source]", &source).await;
        press(&client, "form.editor summary").await;
        fill(&client, "#field-file_name", "users.csv").await;
        if scripts == JavaScript::On {
            wait_for_text(&client, ".verdict", "no file \"users.csv\"").await;
        }
        fill(&client, "#field-file", "login\ncarl").await;
        if scripts == JavaScript::On {
            wait_for_text(&client, ".verdict", "The plan is valid").await;
        }
        press(&client, "button[formaction$='/dry-run']").await;
        wait_for_text(&client, "#dry-run", "passed").await;
        let broken = source.replace("GET /", "FETCH /");
        fill(&client, "textarea[name=source]", &broken).await;
        press(&client, "form.editor button.primary").await;
        wait_for_text(&client, "#mistake", "line").await;
        let kept = find(&client, "#field-file").await.prop("value").await.unwrap();
        assert_eq!(kept.as_deref(), Some("login\ncarl"));
        fill(&client, "textarea[name=source]", &source).await;
        press(&client, "form.editor button.primary").await;
        wait_for_text(&client, "h1", "Site check").await;
        let plan: Value = site.app.get(&format!("/api/v1/load/plans/{id}")).await.json();
        let file = plan["files"]["users.csv"].as_str().unwrap().replace('\r', "");
        assert_eq!(file, "login\ncarl");
        client.close().await.unwrap();
    }
}
