//! The proxy in front of real servers.

mod clients;
mod cluster;
mod connections;
mod refusals;
mod transparency;
mod violations;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use hob_schema::{Catalog, Layout, Schema};
use hob_schema_proxy::{Mode, Options, Proxy, Slots, Totals, UndeclaredScriptKeys};
use hob_testkit::{LIMIT, RedisServer, wait_for};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A family for each kind of rule.
const SCHEMA: &str = r#"
[schema]
name = "shop"
version = 1
[ids]
id = {}
[key.session]
pattern = "session:<id>"
type = "string"
value = { text = 20 }
ttl = { max = "1h" }
[key.count]
pattern = "count:<id>"
type = "string"
value = { int = [0, 100] }
ttl = { none = "Kept." }
[key.total]
pattern = "total:<id>"
type = "string"
value = "int"
ttl = { none = "Kept." }
[key.blob]
pattern = "blob:<id>"
type = "string"
ttl = { none = "Kept." }
[key.cart]
pattern = "cart:<id>"
type = "hash"
ttl = { none = "Kept." }
[key.cart.fields]
owner = "int"
"<id>" = "int"
[key.queue]
pattern = "queue:<id>"
type = "list"
item = { json = "job" }
max_len = 3
ttl = { none = "Kept." }
[key.tags]
pattern = "tags:<id>"
type = "set"
member = { text = 5 }
ttl = { none = "Kept." }
[key.board]
pattern = "board:<id>"
type = "zset"
score = "int"
ttl = { none = "Kept." }
[key.log]
pattern = "log:<id>"
type = "stream"
ttl = { none = "Kept." }
[key.log.fields]
event = "int"
detail = "any?"
[shape.job]
id = "int"
"#;

fn catalog(text: &str) -> Catalog {
    let schema = Schema::parse("shop.toml", text).unwrap_or_else(|errors| panic!("{errors}"));
    Catalog::new(vec![schema], Layout::Plain).unwrap()
}

fn options(mode: Mode, upstream: &str) -> Options {
    Options {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        upstream: upstream.parse().unwrap(),
        mode,
        slots: Slots::Any,
        undeclared_script_keys: UndeclaredScriptKeys::IfWritten,
        grace: Duration::from_millis(50),
        reads_per_second: 100_000,
        max_connections: 1_000,
    }
}

/// A server with a proxy in front of it.
struct Guarded {
    redis: RedisServer,
    proxy: Proxy,
}

impl Guarded {
    async fn start(mode: Mode) -> Guarded {
        Guarded::start_with(|options| options.mode = mode).await
    }

    async fn start_with(change: impl FnOnce(&mut Options)) -> Guarded {
        let redis = RedisServer::start();
        let mut options = options(Mode::Enforce, &redis.url());
        change(&mut options);
        let proxy = Proxy::start(catalog(SCHEMA), options).await.unwrap();
        Guarded { redis, proxy }
    }

    async fn connect(&self) -> Connection {
        Connection::open(self.proxy.address()).await
    }

    fn totals(&self) -> Totals {
        self.proxy.totals()
    }
}

/// How often a violation of a family was found before or after the command.
fn violations(totals: &Totals, family: &str, violation: &str, found: &str) -> u64 {
    let name = format!(
        "hob_schema_proxy_violations_total{{family=\"{family}\",violation=\"{violation}\",found=\"{found}\"}} "
    );
    metric(totals, &name)
}

fn metric(totals: &Totals, name: &str) -> u64 {
    let metrics = totals.metrics();
    metrics.lines().find_map(|line| line.strip_prefix(name)).map_or(0, |count| count.parse().unwrap())
}

async fn wait_for_violation(totals: &Totals, family: &str, violation: &str) {
    wait_for(format!("{violation} of {family}"), LIMIT, async || {
        if violations(totals, family, violation, "after") > 0 { Ok(()) } else { Err(totals.report()) }
    })
    .await;
}

/// A connection that shows replies as they were sent.
struct Connection {
    stream: TcpStream,
    end: u32,
}

impl Connection {
    async fn open(address: SocketAddr) -> Connection {
        Connection { stream: TcpStream::connect(address).await.unwrap(), end: 0 }
    }

    /// Sends commands in one piece, and reads until all of them have been answered.
    async fn send(&mut self, commands: &[&str]) -> String {
        let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(&words(command))).collect();
        String::from_utf8_lossy(&self.send_pieces(&[&bytes]).await).into_owned()
    }

    /// Sends bytes in these pieces. Another command shows when all replies have arrived.
    async fn send_pieces(&mut self, pieces: &[&[u8]]) -> Vec<u8> {
        self.end += 1;
        let end = format!("end of the replies {}", self.end);
        for piece in pieces {
            self.stream.write_all(piece).await.unwrap();
            self.stream.flush().await.unwrap();
        }
        self.stream.write_all(&encode(&[b"ECHO", end.as_bytes()])).await.unwrap();
        let expected = format!("${}\r\n{end}\r\n", end.len()).into_bytes();
        let mut replies = Vec::new();
        let reading = async {
            while !replies.ends_with(&expected) {
                let read = self.stream.read_buf(&mut replies).await.unwrap();
                assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&replies));
            }
        };
        if tokio::time::timeout(LIMIT, reading).await.is_err() {
            panic!("no reply after {:?}", String::from_utf8_lossy(&replies));
        }
        replies.truncate(replies.len() - expected.len());
        replies
    }
}

/// Words are separated by spaces.
fn words(command: &str) -> Vec<&[u8]> {
    command.split(' ').map(str::as_bytes).collect()
}

fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
