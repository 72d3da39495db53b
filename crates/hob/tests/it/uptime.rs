//! `hob uptime`.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::{Output, Stdio};
use std::thread;

use hob_testkit::{LIMIT, RedisOptions, RedisServer};

use crate::program::{hob, stderr_line};

/// Responds to `requests` requests with 200 and a JSON body.
fn target(requests: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().take(requests) {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"ok\":true}").unwrap();
        }
    });
    address
}

fn check(arguments: &[&str]) -> Output {
    hob().args(["uptime", "check"]).args(arguments).output().unwrap()
}

#[test]
fn timeline_of_a_target_that_is_up_is_drawn() {
    let url = format!("http://{}/", target(1));
    let output = check(&[&url, "--assert", "json $.ok == true"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in ["connect", "first byte", "▇", "total", "✓ json $.ok == true", "up: 200"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn exit_code_reports_a_target_that_is_down() {
    let url = format!("http://{}/", target(1));
    let output = check(&[&url, "--json", "--assert", "status == 204", "--assert", "latency < 1h"]);
    assert_eq!(output.status.code(), Some(4));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["up"], &report["failure"]["class"]), (&false.into(), &"assertion".into()));
    let holds: Vec<bool> = report["assertions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result["holds"].as_bool().unwrap())
        .collect();
    assert_eq!(holds, [false, true]);
    assert!(report["phases_ms"]["connect"].is_f64());
}

#[test]
fn port_that_is_closed_is_down() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    assert_eq!(check(&[&address, "--kind", "tcp"]).status.code(), Some(0));
    // Bound, so that no other program can listen on the port, but not listening.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = closed.local_addr().unwrap().to_string();
    assert_eq!(check(&[&address, "--kind", "tcp"]).status.code(), Some(4));
}

/// On Linux, a connection to 0.0.0.0 reaches this machine.
#[test]
fn denied_address_is_checked_if_it_is_listed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("0.0.0.0:{}", listener.local_addr().unwrap().port());
    let output = check(&[&address, "--kind", "tcp"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(4));
    assert!(
        text.contains("unspecified addresses are not allowed; to allow it, add it to [outbound] allow"),
        "{text}"
    );
    let listed = hob()
        .env("HOB_OUTBOUND_ALLOW", "[\"0.0.0.0\"]")
        .args(["uptime", "check", &address, "--kind", "tcp"])
        .output()
        .unwrap();
    assert_eq!(listed.status.code(), Some(0), "{}", String::from_utf8_lossy(&listed.stdout));
}

#[test]
fn mistake_is_reported_with_its_position() {
    let output = check(&["http://127.0.0.1:1/", "--assert", "status ~ 200"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(text.contains("column 8: expected in, or a comparison such as =="), "{text}");
    for (arguments, message) in [
        (&["ftp://example.com/"][..], "target: has the scheme ftp"),
        (&["foo"], "target: "),
        (&["..", "--kind", "dns"], "target: is not a domain name"),
        (
            &["127.0.0.1:1", "--kind", "tcp", "--assert", "status == 200"],
            "assertions[0]: is only for monitors of kind http",
        ),
    ] {
        let output = check(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(message) && text.contains("Usage: hob uptime check"), "{text}");
    }
}

/// The certificate authorities and the name server of `hob.toml` are those of checks in the terminal, too.
#[test]
fn check_uses_the_configured_authorities_and_name_server() {
    let redis = RedisServer::start_with(&RedisOptions { tls: true, ..RedisOptions::default() });
    let address =
        redis.tls_url().trim_start_matches("rediss://").split(['/', '?']).next().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca.pem"), redis.authority_pem()).unwrap();
    let certificate = |config: &str| {
        std::fs::write(folder.path().join("hob.toml"), config).unwrap();
        hob()
            .current_dir(&folder)
            .args(["uptime", "check", &address, "--kind", "certificate"])
            .output()
            .unwrap()
    };
    let unknown = certificate("");
    assert_eq!(unknown.status.code(), Some(4), "{}", String::from_utf8_lossy(&unknown.stderr));
    assert!(String::from_utf8_lossy(&unknown.stdout).contains("unknown issuer"));
    let trusted = certificate("[uptime]\nca_file = \"ca.pem\"\n");
    assert_eq!(trusted.status.code(), Some(0), "{}", String::from_utf8_lossy(&trusted.stdout));
    let missing = certificate("[uptime]\nca_file = \"none.pem\"\n");
    assert!(stderr_line(&missing).contains("none.pem"));

    let name_server = UdpSocket::bind("127.0.0.1:0").unwrap();
    name_server.set_read_timeout(Some(LIMIT)).unwrap();
    let mut command = hob();
    command.env("HOB_UPTIME_NAME_SERVER", name_server.local_addr().unwrap().to_string());
    let mut child = command
        .args(["uptime", "check", "shop.example", "--kind", "dns"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut query = [0; 512];
    let length = name_server.recv(&mut query).expect("no query");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(query[..length].windows(5).any(|label| label == b"\x04shop"), "{:?}", &query[..length]);
}
