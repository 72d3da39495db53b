//! Addresses that users of the API must not reach: every kind of check, redirects, names and webhooks.

use std::net::IpAddr;

use hob_fixtures::{Layout, TestContext};
use hob_service::ServiceContext;
use hob_uptime::probe::Limits;
use serde_json::{Value, json};

use crate::NEEDS;
use crate::service::{Service, StatusTarget};
use crate::target::{Target, answer, check, get, only, outcome, probe, run};

/// Addresses that are always denied, in the form of a URL, with their class in the error message.
const DENIED: [(&str, &str); 9] = [
    ("169.254.169.254", "link-local"),
    ("[::ffff:169.254.169.254]", "link-local"),
    ("[64:ff9b::a9fe:a9fe]", "link-local"),
    ("[2002:a9fe:a9fe::1]", "link-local"),
    ("[fe80::1]", "link-local"),
    ("[fd00:ec2::254]", "cloud metadata"),
    ("0.0.0.0", "unspecified"),
    ("[::]", "unspecified"),
    ("224.0.0.1", "multicast"),
];

fn denied(host: &str, class: &str) -> (String, String) {
    let address: IpAddr = host.trim_matches(['[', ']']).parse().unwrap();
    let message = format!(
        "cannot connect to {address}: {class} addresses are not allowed; to allow it, add it to [outbound] allow"
    );
    ("forbidden".to_owned(), message)
}

#[tokio::test]
async fn every_kind_of_check_refuses_metadata_and_link_local_addresses() {
    let probe = probe(Limits::default());
    for (host, class) in DENIED {
        for spec in [
            json!({"kind": "http", "target": format!("http://{host}/latest/meta-data/")}),
            json!({"kind": "tcp", "target": format!("{host}:80")}),
            json!({"kind": "certificate", "target": format!("{host}:443")}),
            json!({"kind": "dns", "target": "a.example", "dns": {"record": "A", "server": format!("{host}:53")}}),
        ] {
            let seen = run(&probe, &check(&spec.to_string()), &[]).await;
            assert_eq!(outcome(&seen), denied(host, class), "{spec}");
        }
    }
}

/// On Linux, a connection to 0.0.0.0 reaches this machine.
#[tokio::test]
async fn redirect_to_a_denied_address_is_refused() {
    let inside = Target::responding(|_| answer(200, "", "secret")).await;
    let port = inside.address.port();
    for (host, class) in DENIED {
        let location = format!("location: http://{host}:{port}/\r\n");
        let target = Target::responding(move |_| answer(302, &location, "")).await;
        let seen = run(&probe(Limits::default()), &get(&target.url("/")), &["body contains \"x\""]).await;
        assert_eq!(outcome(&seen), denied(host, class));
    }
    assert_eq!(inside.connections(), 0);
}

#[tokio::test]
async fn listed_address_is_allowed() {
    let target = Target::responding(|_| answer(200, "", "")).await;
    let probe = probe(Limits { outbound: only(&["0.0.0.0", "127.0.0.1"]), ..Limits::default() });
    let seen = run(&probe, &get(&format!("http://0.0.0.0:{}/", target.address.port())), &[]).await;
    assert_eq!(outcome(&seen).0, "ok", "{seen:?}");
}

/// The running service uses the current policy of its context, also after a change.
#[tokio::test(flavor = "multi_thread")]
async fn monitor_of_a_private_target_is_refused_until_it_is_listed() {
    let test = TestContext::embedded(NEEDS, Layout::Plain).await;
    let context = ServiceContext { outbound: only(&[]), ..test.context().clone() };
    let service = Service::start(&context).await;
    let target = StatusTarget::start().await;
    let id = service.add_monitor(&target, json!({"interval_s": 3600})).await;
    let path = format!("/api/v1/uptime/monitors/{id}/check");
    let seen: Value = service.app.post(&path, &json!({})).await.json();
    assert!(seen.to_string().contains("loopback addresses are not allowed"), "{seen}");
    assert_eq!(target.request_count(), 0);

    let allow = vec!["127.0.0.1".parse().unwrap()];
    context.outbound.replace(hob_net::OutboundPolicy { allow, ..Default::default() });
    let seen: Value = service.app.post(&path, &json!({})).await.json();
    assert_eq!(seen["ok"], json!(true), "{seen}");
}
