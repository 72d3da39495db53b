//! `hob token`, and what a server makes of the tokens.

use hob_testkit::{LIMIT, wait_for};

use crate::program::{Server, complaint, hob};

const ADMIN: &str = "an unguessable admin token";

/// Runs `hob token` over the database of a server.
fn token(server: &Server, arguments: &[&str]) -> std::process::Output {
    hob().current_dir(&server.folder).arg("token").args(arguments).output().unwrap()
}

fn said(output: &std::process::Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn ask(server: &Server, token: &str, path: &str) -> u16 {
    let headers =
        format!("Host: {}\r\nAccept: application/json\r\nAuthorization: Bearer {token}", server.listen);
    server.get_with(&headers, path).status
}

#[tokio::test]
async fn token_grants_its_scopes_until_it_is_revoked() {
    let server = Server::start_with(&[], &[("HOB_ADMIN_TOKEN", ADMIN)]);
    assert_eq!(ask(&server, "hob_nobodys", "/metrics"), 401);
    assert_eq!(ask(&server, ADMIN, "/metrics"), 200);

    let made =
        said(&token(&server, &["create", "prometheus", "--scope", "metrics:read", "--expires", "90d"]));
    let text = made.lines().next().unwrap();
    assert!(text.starts_with("hob_"), "{made}");
    assert_eq!((ask(&server, text, "/metrics"), ask(&server, text, "/api/v1/tokens")), (200, 403));

    let list = said(&token(&server, &["list"]));
    assert!(list.contains("prometheus") && list.contains("metrics:read") && !list.contains(text), "{list}");
    let id = list.lines().nth(1).unwrap().split(' ').next().unwrap();
    said(&token(&server, &["revoke", id]));
    wait_for("the revocation to reach the server", LIMIT, async || ask(&server, text, "/metrics") == 401)
        .await;
    assert!(said(&token(&server, &["list"])).contains("revoked"));
    assert!(complaint(&token(&server, &["revoke", id])).contains("no token"));
}

#[test]
fn invalid_token_arguments_are_rejected() {
    let server = Server::start(&[]);
    for arguments in
        [&["create", "x"][..], &["create", "x", "--scope", "everything"], &["create", "", "--scope", "admin"]]
    {
        assert_eq!(token(&server, arguments).status.code(), Some(2), "{arguments:?}");
    }
    let nowhere = tempfile::tempdir().unwrap();
    let output = hob().current_dir(&nowhere).args(["token", "list"]).output().unwrap();
    assert!(complaint(&output).starts_with("hob: no database at "), "the command does not create a database");
}
