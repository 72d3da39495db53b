//! A Cluster behind the proxy: clients see only addresses of the proxy.

use std::process::Command;

use hob_testkit::{RedisCluster, node_modules, python};

use super::*;

const TAGGED: &str = r#"
[schema]
name = "shop"
version = 1
[ids]
id = {}
[key.count]
pattern = "count:<id>"
type = "string"
value = "int"
ttl = { none = "Kept." }
tag = "id"
[key.session]
pattern = "session:<id>"
type = "string"
ttl = { max = "1h" }
tag = "id"
"#;

const REDIS_PY: &str = r#"
import sys, redis
store = redis.RedisCluster(host='127.0.0.1', port=int(sys.argv[1]), decode_responses=True)
ports = {node.port for node in store.get_nodes()}
assert ports == {int(port) for port in sys.argv[2].split(',')}, ports
for n in range(100):
    assert store.set(f'count:{n}', n)
assert [store.get(f'count:{n}') for n in range(100)] == [str(n) for n in range(100)]
with store.pipeline() as pipeline:
    for n in range(100):
        pipeline.incr(f'count:{n}')
    assert pipeline.execute() == [n + 1 for n in range(100)]
try:
    store.set('other', 1)
    assert False
except redis.ResponseError as error:
    assert 'SCHEMA undeclared-key' in str(error), error
print('done')
"#;

const IOREDIS: &str = r#"
const Redis = require('ioredis'), assert = require('assert');
(async () => {
  const store = new Redis.Cluster([{ host: '127.0.0.1', port: Number(process.argv[1]) }]);
  for (let n = 0; n < 100; n++) await store.set(`count:${n}`, n);
  for (let n = 0; n < 100; n++) assert.equal(await store.get(`count:${n}`), String(n));
  const ports = store.nodes().map((node) => node.options.port).sort().join(',');
  assert.equal(ports, process.argv[2].split(',').sort().join(','));
  await assert.rejects(store.set('other', 1), /SCHEMA undeclared-key/);
  store.disconnect();
  console.log('done');
})().catch((e) => { console.error(e); process.exit(1); });
"#;

async fn start(cluster: &RedisCluster) -> Proxy {
    let options = Options { slots: Slots::One, ..options(Mode::Enforce, &cluster.url()) };
    let schema = Schema::parse("shop.toml", TAGGED).unwrap();
    Proxy::start(Catalog::new(vec![schema], Layout::Plain).unwrap(), options).await.unwrap()
}

fn ports(proxy: &Proxy) -> String {
    let ports: Vec<String> = proxy.servers().iter().map(|(_, address)| address.port().to_string()).collect();
    ports.join(",")
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_clients_use_only_the_proxy() {
    let cluster = RedisCluster::start();
    let proxy = start(&cluster).await;
    assert_eq!(proxy.servers().len(), 3);
    let port = proxy.address().port().to_string();
    let mut python = Command::new(python());
    python.args(["-c", REDIS_PY, &port, &ports(&proxy)]);
    let mut node = Command::new("node");
    node.env("NODE_PATH", node_modules()).args(["-e", IOREDIS, &port, &ports(&proxy)]);
    for mut command in [python, node] {
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(out.trim_end(), "done", "{err}");
    }
    let totals = proxy.totals();
    assert_eq!(violations(&totals, "undeclared", "undeclared-key", "before"), 2, "{}", totals.report());
    // A key is read on the server that has it.
    let slot_owner = cluster.master_of("session:1");
    let (_, address) = proxy.servers().into_iter().find(|(host, _)| host.port == slot_owner.port()).unwrap();
    Connection::open(address).await.send(&["SET session:1 x"]).await;
    wait_for_violation(&totals, "shop.session", "missing-ttl").await;
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_and_maps_name_the_proxy() {
    let cluster = RedisCluster::start();
    let proxy = start(&cluster).await;
    let servers = proxy.servers();
    let ours = |text: &str| servers.iter().any(|(_, address)| text.contains(&address.port().to_string()));
    let theirs =
        |text: &str| cluster.masters().iter().any(|master| text.contains(&master.port().to_string()));
    let owner = cluster.master_of("count:1").port();
    let (_, wrong) = servers.iter().find(|(host, _)| host.port != owner).unwrap();
    let (_, right) = servers.iter().find(|(host, _)| host.port == owner).unwrap();
    let mut connection = Connection::open(*wrong).await;
    let slot: u16 = cluster.masters()[0].command(&["CLUSTER", "KEYSLOT", "count:1"]);
    let replies = connection.send(&["GET count:1", "MULTI", "PING", "EXEC"]).await;
    assert_eq!(replies, format!("-MOVED {slot} {right}\r\n+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n"));
    for question in ["CLUSTER SLOTS", "cluster nodes"] {
        let map = connection.send(&["PING", question, "PING"]).await;
        assert!(map.starts_with("+PONG\r\n") && map.ends_with("+PONG\r\n"), "{map}");
        assert!(ours(&map) && !theirs(&map), "{map}");
    }
    assert!(connection.send(&["CLUSTER SHARDS"]).await.starts_with("-ERR unknown subcommand"));
    proxy.stop().await;
}
