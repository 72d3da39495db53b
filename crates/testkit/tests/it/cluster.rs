//! A Redis Cluster.

use std::time::{Duration, Instant};

use hob_testkit::{RedisCluster, RedisOptions, wait_until};
use redis::cluster::ClusterClient;
use redis::{Commands, RedisResult};

fn client(cluster: &RedisCluster) -> ClusterClient {
    let addresses = cluster.url().replace("redis+cluster://", "");
    ClusterClient::new(addresses.split(',').map(|address| format!("redis://{address}"))).unwrap()
}

#[test]
fn master_of_returns_the_master_of_a_key() {
    let cluster = RedisCluster::start();
    let mut connection = client(&cluster).get_connection().unwrap();
    for number in 0..100 {
        let key = format!("key:{number}");
        let () = connection.set(&key, number).unwrap();
        assert_eq!(cluster.master_of(&key).command::<i32>(&["GET", &key]), number);
    }
    let sizes: Vec<usize> = cluster.masters().iter().map(|master| master.command(&["DBSIZE"])).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 100);
    assert!(sizes.iter().all(|size| *size > 0), "{sizes:?}");
    cluster.flush_all();
    assert!(cluster.masters().iter().all(|master| master.command::<usize>(&["DBSIZE"]) == 0));
}

/// On a busy machine, not every start is that quick.
#[test]
fn cluster_starts_within_two_seconds() {
    wait_until("a start within two seconds", || {
        let started = Instant::now();
        drop(RedisCluster::start());
        let took = started.elapsed();
        if took < Duration::from_secs(2) { Ok(()) } else { Err(took) }
    });
}

#[test]
fn cluster_requires_its_password() {
    let options = RedisOptions { password: Some("secret".to_owned()), ..RedisOptions::default() };
    let cluster = RedisCluster::start_with(&options);
    assert!(cluster.url().starts_with("redis+cluster://:secret@127.0.0.1:"));
    let node = format!("127.0.0.1:{}", cluster.masters()[0].port());
    let connect = |url| ClusterClient::new([url]).unwrap().get_connection();
    assert!(connect(format!("redis://:secret@{node}")).is_ok());
    assert!(connect(format!("redis://{node}")).is_err());
}

#[tokio::test]
async fn restarted_master_loses_only_its_own_data() {
    let cluster = RedisCluster::start();
    let keys = ["{a}", "{b}", "{c}"];
    let mut connection = client(&cluster).get_connection().unwrap();
    for key in keys {
        let () = connection.set(key, "value").unwrap();
    }
    let killed = cluster.master_of("{a}");
    killed.kill();
    killed.restart();
    cluster.wait_until_whole().await;
    let mut connection = client(&cluster).get_connection().unwrap();
    for key in keys {
        let survived = cluster.master_of(key).port() != killed.port();
        let exists: RedisResult<bool> = connection.exists(key);
        assert_eq!(exists.unwrap(), survived, "{key}");
    }
}
