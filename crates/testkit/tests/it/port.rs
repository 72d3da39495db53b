//! Reservation of ports.

use std::collections::HashSet;
use std::thread;

use hob_testkit::RedisServer;

#[test]
fn servers_that_start_together_get_different_ports() {
    let starting: Vec<_> = (0..16).map(|_| thread::spawn(RedisServer::start)).collect();
    let servers: Vec<RedisServer> = starting.into_iter().map(|thread| thread.join().unwrap()).collect();
    let ports: HashSet<u16> = servers.iter().map(RedisServer::port).collect();
    assert_eq!(ports.len(), servers.len());
    for server in &servers {
        assert_eq!(server.info("server").get::<u32>("process_id"), Some(server.pid()));
    }
}
