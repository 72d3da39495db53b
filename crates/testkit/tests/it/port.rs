//! Ports under competition.

use std::collections::HashSet;
use std::thread;

use hob_testkit::RedisServer;

#[test]
fn many_servers_started_at_once_get_ports_of_their_own() {
    let starting: Vec<_> = (0..16).map(|_| thread::spawn(RedisServer::start)).collect();
    let servers: Vec<RedisServer> = starting.into_iter().map(|thread| thread.join().unwrap()).collect();
    let ports: HashSet<u16> = servers.iter().map(RedisServer::port).collect();
    assert_eq!(ports.len(), servers.len());
    for server in &servers {
        assert_eq!(server.info("server").get::<u32>("process_id"), Some(server.pid()));
    }
}
