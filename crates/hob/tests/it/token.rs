//! `hob token`, and the access that its tokens grant on a server.

use hob_testkit::{LIMIT, wait_for};

use crate::program::{Server, hob, stderr_line};

const ADMIN: &str = "an unguessable admin token";

/// Runs `hob token` on the database of a server.
fn token(server: &Server, arguments: &[&str]) -> std::process::Output {
    hob().current_dir(&server.folder).arg("token").args(arguments).output().unwrap()
}

fn stdout(output: &std::process::Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn get_status(server: &Server, token: &str, path: &str) -> u16 {
    let headers =
        format!("Host: {}\r\nAccept: application/json\r\nAuthorization: Bearer {token}", server.listen);
    server.get_with(&headers, path).status
}

#[tokio::test]
async fn token_grants_its_scopes_until_it_is_revoked() {
    let server = Server::start_with(&[], &[("HOB_ADMIN_TOKEN", ADMIN)]);
    assert_eq!(get_status(&server, "hob_nobodys", "/metrics"), 401);
    assert_eq!(get_status(&server, ADMIN, "/metrics"), 200);

    let created =
        stdout(&token(&server, &["create", "prometheus", "--scope", "metrics:read", "--expires", "90d"]));
    let text = created.lines().next().unwrap();
    assert!(text.starts_with("hob_"), "{created}");
    assert_eq!(
        (get_status(&server, text, "/metrics"), get_status(&server, text, "/api/v1/tokens")),
        (200, 403)
    );

    let list = stdout(&token(&server, &["list"]));
    assert!(list.contains("prometheus") && list.contains("metrics:read") && !list.contains(text), "{list}");
    let id = list.lines().nth(1).unwrap().split(' ').next().unwrap();
    stdout(&token(&server, &["revoke", id]));
    wait_for("the revocation to reach the server", LIMIT, async || {
        get_status(&server, text, "/metrics") == 401
    })
    .await;
    assert!(stdout(&token(&server, &["list"])).contains("revoked"));
    assert!(stderr_line(&token(&server, &["revoke", id])).contains("no token"));
}

#[test]
fn invalid_token_arguments_are_rejected() {
    let server = Server::start(&[]);
    for arguments in
        [&["create", "x"][..], &["create", "x", "--scope", "everything"], &["create", "", "--scope", "admin"]]
    {
        assert_eq!(token(&server, arguments).status.code(), Some(2), "{arguments:?}");
    }
    let empty_folder = tempfile::tempdir().unwrap();
    let output = hob().current_dir(&empty_folder).args(["token", "list"]).output().unwrap();
    assert!(
        stderr_line(&output).starts_with("hob: there is no database at "),
        "the command does not create a database"
    );
}
