//! DNS checks, and names that resolve to addresses that are not allowed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, CNAME, MX, TXT};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use hob_uptime::probe::Limits;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use crate::target::{Target, answer, check, get, only, outcome, probe, run};

/// A name server with a few names.
struct NameServer {
    address: SocketAddr,
    questions: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl NameServer {
    /// Answers the nth query with the result of `records`; an empty result means NXDOMAIN.
    async fn start(records: impl Fn(usize, &str, RecordType) -> Vec<RData> + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let questions = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&questions);
        let task = tokio::spawn(async move {
            let mut buffer = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let Ok(question) = Message::from_vec(&buffer[..length]) else { continue };
                let nth = count.fetch_add(1, Ordering::SeqCst);
                let reply = reply(&question, |name, kind| records(nth, name, kind));
                let _ = socket.send_to(&reply.to_vec().unwrap(), from).await;
            }
        });
        Self { address, questions, task }
    }
}

fn reply(question: &Message, records: impl Fn(&str, RecordType) -> Vec<RData>) -> Message {
    let mut reply = Message::response(question.metadata.id, OpCode::Query);
    let query = question.queries[0].clone();
    let name = query.name().clone();
    let found = records(name.to_utf8().trim_end_matches('.'), query.query_type());
    if found.is_empty() {
        reply.metadata.response_code = ResponseCode::NXDomain;
    }
    reply.add_query(query);
    reply.add_answers(found.into_iter().map(|data| Record::from_rdata(name.clone(), 0, data)));
    reply
}

fn a(address: [u8; 4]) -> RData {
    RData::A(A(Ipv4Addr::from(address)))
}

fn dns(
    server: &NameServer,
    name: &str,
    record: &str,
    expected: &[&str],
) -> hob_uptime::monitor::check::Check {
    let expected = serde_json::to_string(expected).unwrap();
    check(&format!(
        r#"{{"kind":"dns","target":"{name}","dns":{{"record":"{record}","expected":{expected},"server":"{}"}}}}"#,
        server.address
    ))
}

#[tokio::test]
async fn records_are_compared_as_users_write_them() {
    let server = NameServer::start(|_, name, kind| match (name, kind) {
        ("a.example", RecordType::A) => vec![a([192, 0, 2, 1]), a([192, 0, 2, 2])],
        ("c.example", RecordType::CNAME) => {
            vec![RData::CNAME(CNAME(Name::from_ascii("A.Example.").unwrap()))]
        }
        ("m.example", RecordType::MX) => {
            vec![RData::MX(MX::new(10, Name::from_ascii("mail.example.").unwrap()))]
        }
        ("t.example", RecordType::TXT) => {
            vec![RData::TXT(TXT::new(vec!["v=spf1 ".to_owned(), "-all".to_owned()]))]
        }
        _ => Vec::new(),
    })
    .await;
    let probe = probe(Limits::default());
    for (name, record, expected, class) in [
        ("a.example", "A", vec![], "ok"),
        ("a.example", "A", vec!["192.0.2.2", "192.0.2.1"], "ok"),
        ("a.example", "A", vec!["192.0.2.3"], "assertion"),
        ("c.example", "CNAME", vec!["a.example."], "ok"),
        ("m.example", "MX", vec!["10 mail.example"], "ok"),
        ("t.example", "TXT", vec!["v=spf1 -all"], "ok"),
        ("t.example", "TXT", vec!["V=SPF1 -ALL"], "assertion"),
        ("nowhere.example", "A", vec![], "name"),
    ] {
        let seen = run(&probe, &dns(&server, name, record, &expected), &[]).await;
        assert_eq!(outcome(&seen).0, class, "{name} {record} {expected:?}: {seen:?}");
    }
}

#[tokio::test]
async fn records_are_not_cached() {
    let server = NameServer::start(|_, _, _| vec![a([192, 0, 2, 1])]).await;
    let probe = probe(Limits::default());
    for _ in 0..2 {
        assert_eq!(outcome(&run(&probe, &dns(&server, "a.example", "A", &[]), &[]).await).0, "ok");
    }
    assert_eq!(server.questions.load(Ordering::SeqCst), 2);
}

/// Allows only 127.0.0.1, so that all other addresses of the machine are private.
fn guarded(server: &NameServer) -> Limits {
    let outbound = only(&["127.0.0.1"]);
    Limits { outbound, name_server: Some(server.address), ..Limits::default() }
}

#[tokio::test]
async fn name_is_resolved_and_timed() {
    let server =
        NameServer::start(|_, _, kind| if kind == RecordType::A { vec![a([127, 0, 0, 1])] } else { vec![] });
    let server = server.await;
    let target = Target::responding(|_| answer(200, "", "")).await;
    let url = format!("http://here.example:{}/", target.address.port());
    let seen = run(&probe(guarded(&server)), &get(&url), &[]).await;
    assert_eq!(outcome(&seen).0, "ok", "{seen:?}");
    assert!(seen.phases.dns.is_some());
    assert!(target.requests()[0].contains(&format!("host: here.example:{}", target.address.port())));
}

#[tokio::test]
async fn name_with_a_private_address_is_refused() {
    let server =
        NameServer::start(|_, _, kind| if kind == RecordType::A { vec![a([127, 0, 0, 2])] } else { vec![] });
    let server = server.await;
    let private = Target::on(IpAddr::from([127, 0, 0, 2]), |stream| async { drop(stream) }).await;
    let url = format!("http://inside.example:{}/", private.address.port());
    let probe = probe(guarded(&server));
    assert_eq!(outcome(&run(&probe, &get(&url), &[]).await).0, "forbidden");
    let tcp = check(&format!(r#"{{"kind":"tcp","target":"inside.example:{}"}}"#, private.address.port()));
    assert_eq!(outcome(&run(&probe, &tcp, &[]).await).0, "forbidden");
    assert_eq!(private.connections(), 0);
}

/// Link-local addresses are denied by default.
#[tokio::test]
async fn name_with_a_link_local_address_is_refused() {
    let server = NameServer::start(|_, _, kind| match kind {
        RecordType::A => vec![a([169, 254, 169, 254])],
        _ => Vec::new(),
    });
    let server = server.await;
    let limits = Limits { name_server: Some(server.address), ..Limits::default() };
    let (class, message) = outcome(&run(&probe(limits), &get("http://metadata.example/"), &[]).await);
    assert_eq!(class, "forbidden");
    assert!(message.starts_with("cannot connect to 169.254.169.254: link-local addresses"), "{message}");
}

/// The probe connects to the address that it has checked.
#[tokio::test]
async fn dns_rebinding_does_not_reach_a_private_address() {
    let server = NameServer::start(|nth, _, kind| match kind {
        RecordType::A if nth < 2 => vec![a([127, 0, 0, 1])],
        RecordType::A => vec![a([127, 0, 0, 2])],
        _ => Vec::new(),
    })
    .await;
    let private = Target::on(IpAddr::from([127, 0, 0, 2]), |stream| async { drop(stream) }).await;
    let url = format!("http://rebinding.example:{}/", private.address.port());
    let probe = probe(guarded(&server));
    for _ in 0..3 {
        run(&probe, &get(&url), &[]).await;
    }
    assert_eq!(private.connections(), 0);
}

#[tokio::test]
async fn redirect_to_a_private_address_is_refused() {
    let server =
        NameServer::start(|_, _, kind| if kind == RecordType::A { vec![a([127, 0, 0, 2])] } else { vec![] });
    let server = server.await;
    let private = Target::on(IpAddr::from([127, 0, 0, 2]), |stream| async { drop(stream) }).await;
    let port = private.address.port();
    let probe = probe(guarded(&server));
    for inside in
        [format!("127.0.0.2:{port}"), format!("inside.example:{port}"), format!("[::ffff:127.0.0.2]:{port}")]
    {
        let location = format!("location: http://{inside}/\r\n");
        let target = Target::responding(move |_| answer(302, &location, "")).await;
        let seen = run(&probe, &get(&target.url("/")), &[]).await;
        assert_eq!(outcome(&seen).0, "forbidden", "{inside}");
    }
    assert_eq!(private.connections(), 0);
}

#[tokio::test]
async fn private_name_server_is_refused() {
    let server = NameServer::start(|_, _, _| vec![a([192, 0, 2, 1])]).await;
    let limits = Limits { outbound: only(&[]), ..Limits::default() };
    let seen = run(&probe(limits), &dns(&server, "a.example", "A", &[]), &[]).await;
    assert_eq!(outcome(&seen).0, "forbidden");
    assert_eq!(server.questions.load(Ordering::SeqCst), 0);
}
