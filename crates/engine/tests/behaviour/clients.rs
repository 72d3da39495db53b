//! Third-party clients, over RESP2 and RESP3.

use std::process::{Command, Output};

use hob_engine::Config;
use hob_testkit::{node_modules, python};

use crate::server::Server;

#[track_caller]
pub(crate) fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out.trim_end().to_owned()
}

fn redis_cli(server: &Server, words: &[&str]) -> String {
    let port = server.address.port().to_string();
    text(&Command::new("redis-cli").args(["-p", &port]).args(words).output().expect("redis-cli is installed"))
}

#[test]
fn redis_cli_works() {
    let server = Server::start(Config::default());
    for protocol in ["-2", "-3"] {
        let cli = |words: &[&str]| redis_cli(&server, &[&[protocol], words].concat());
        assert_eq!(cli(&["FLUSHALL"]), "OK");
        assert_eq!(cli(&["HSET", "h", "a", "1"]), "1");
        // redis-cli prints a RESP3 map in its own format.
        assert_eq!(cli(&["HGETALL", "h"]), if protocol == "-2" { "a\n1" } else { "a 1" });
        assert_eq!(cli(&["EVAL", "return {KEYS[1], ARGV[1]}", "1", "k", "v"]), "k\nv");
        assert_eq!(cli(&["--scan", "--pattern", "h*"]), "h");
        assert!(cli(&["INFO", "server"]).contains("redis_version:7.0"));
        assert!(cli(&["CLIENT", "LIST"]).contains(" cmd=client|list "));
        assert!(cli(&["COMMAND", "INFO", "memory"]).contains("memory|usage"));
        assert!(cli(&["--bigkeys"]).contains("Biggest"));
        assert!(cli(&["--memkeys"]).contains("Biggest"));
    }
}

#[test]
fn redis_py_works() {
    let server = Server::start(Config::default());
    let script = r#"
import sys, redis
for protocol in (2, 3):
    r = redis.Redis(port=int(sys.argv[1]), protocol=protocol, decode_responses=True)
    r.flushall()
    assert r.ping()
    assert r.set('k', 'v', ex=100) and r.get('k') == 'v' and 0 < r.ttl('k') <= 100
    r.hset('h', mapping={'a': '1', 'b': '2'})
    assert r.hgetall('h') == {'a': '1', 'b': '2'}
    r.zadd('z', {'a': 1, 'b': 2.5})
    assert [tuple(p) for p in r.zrange('z', 0, -1, withscores=True)] == [('a', 1.0), ('b', 2.5)]
    assert r.smembers('none') == set()
    r.sadd('s', 'x', 'y'); assert r.smembers('s') == {'x', 'y'}
    assert sorted(r.scan_iter('*')) == ['h', 'k', 's', 'z']
    with r.pipeline() as p:
        p.watch('n'); p.multi(); p.incr('n'); p.incr('n')
        assert p.execute() == [1, 2]
    script = r.register_script('return redis.call("INCRBY", KEYS[1], ARGV[1])')
    assert script(keys=['n'], args=[5]) == 7
    with r.lock('lock', timeout=60): assert r.exists('lock')
    pubsub = r.pubsub(); pubsub.subscribe('c'); pubsub.psubscribe('c*')
    assert pubsub.get_message(timeout=10)['type'] == 'subscribe'
    assert pubsub.get_message(timeout=10)['type'] == 'psubscribe'
    assert r.publish('c', 'hi') == 2
    kinds = sorted(pubsub.get_message(timeout=10)['type'] for _ in range(2))
    assert kinds == ['message', 'pmessage'], kinds
    pubsub.close()
    try: r.lpush('k', 1); assert False
    except redis.ResponseError as e: assert 'wrong kind' in str(e)
    assert r.client_setname('py') and r.client_getname() == 'py'
    assert r.info('memory')['used_memory'] > 0
    assert r.info('everything')['cmdstat_set']['calls'] > 0
    own = r.client_info()
    assert own['name'] == 'py' and own['resp'] == str(protocol) and own['multi'] == -1
    assert str(own['id']) in [client['id'] for client in r.client_list()]
    assert r.client_list(client_id=[own['id']])[0]['lib-name'] == 'redis-py'
    assert r.client_kill_filter(_id=123456) == 0
    assert r.object('encoding', 'k') == 'embstr'
    r.zadd('lex', {'a': 0, 'b': 0, 'c': 0}); assert r.zrangebylex('lex', '(a', '+') == ['b', 'c']
    assert r.command_getkeys('MSET', 'a', 1, 'b', 2) == ['a', 'b']
    assert r.config_get('maxmemory') == {'maxmemory': '0'}
    assert r.memory_usage('k') > 0
    assert r.command_count() > 100 and 'zadd' in r.command()
print('done')
"#;
    let port = server.address.port().to_string();
    let output = Command::new(python()).args(["-c", script, &port]).output().expect("python is installed");
    assert_eq!(text(&output), "done");
}

#[test]
fn ioredis_works() {
    let server = Server::start(Config::default());
    let script = r#"
const Redis = require('ioredis'), assert = require('assert');
(async () => {
  const port = Number(process.argv[1]);
  const r = new Redis(port), s = new Redis(port);
  await r.flushall();
  assert.equal(await r.set('k', 'v', 'EX', 100), 'OK');
  assert.equal(await r.get('k'), 'v');
  assert.deepEqual(await r.hset('h', { a: 1, b: 2 }), 2);
  assert.deepEqual(await r.hgetall('h'), { a: '1', b: '2' });
  const replies = await r.multi().incr('n').incr('n').exec();
  assert.deepEqual(replies, [[null, 1], [null, 2]]);
  r.defineCommand('add', { numberOfKeys: 1, lua: 'return redis.call("INCRBY", KEYS[1], ARGV[1])' });
  assert.equal(await r.add('n', 5), 7);
  const heard = new Promise((resolve) => s.on('message', (channel, text) => resolve(channel + ' ' + text)));
  await s.subscribe('c');
  await r.publish('c', 'hi');
  assert.equal(await heard, 'c hi');
  await assert.rejects(r.lpush('k', 1), /WRONGTYPE/);
  let keys = [];
  for await (const page of r.scanStream()) keys = keys.concat(page);
  assert.deepEqual(keys.sort(), ['h', 'k', 'n']);
  r.disconnect(); s.disconnect();
  console.log('done');
})().catch((e) => { console.error(e); process.exit(1); });
"#;
    let port = server.address.port().to_string();
    let output = Command::new("node")
        .env("NODE_PATH", node_modules())
        .args(["-e", script, &port])
        .output()
        .expect("node is installed");
    assert_eq!(text(&output), "done");
}
