//! A Redis Cluster.

use std::time::{Duration, Instant};

use hob_testkit::{RedisCluster, RedisOptions};
use redis::cluster::ClusterClient;
use redis::{Commands, RedisResult};

fn client(cluster: &RedisCluster) -> ClusterClient {
    let addresses = cluster.url().replace("redis+cluster://", "");
    ClusterClient::new(addresses.split(',').map(|address| format!("redis://{address}"))).unwrap()
}

#[test]
fn every_slot_takes_writes_on_the_master_that_the_kit_names() {
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

#[test]
fn a_cluster_starts_faster_than_masters_usually_wait() {
    let fastest = (0..3).map(|_| {
        let begun = Instant::now();
        drop(RedisCluster::start());
        begun.elapsed()
    });
    assert!(fastest.min().unwrap() < Duration::from_secs(2));
}

#[test]
fn a_clusters_password_is_asked_for() {
    let options = RedisOptions { password: Some("secret".to_owned()), ..RedisOptions::default() };
    let cluster = RedisCluster::start_with(&options);
    assert!(cluster.url().starts_with("redis+cluster://:secret@127.0.0.1:"));
    let node = format!("127.0.0.1:{}", cluster.masters()[0].port());
    let connect = |url| ClusterClient::new([url]).unwrap().get_connection();
    assert!(connect(format!("redis://:secret@{node}")).is_ok());
    assert!(connect(format!("redis://{node}")).is_err());
}

#[tokio::test]
async fn one_master_can_lose_its_data_alone() {
    let cluster = RedisCluster::start();
    let keys = ["{a}", "{b}", "{c}"];
    let mut connection = client(&cluster).get_connection().unwrap();
    for key in keys {
        let () = connection.set(key, "value").unwrap();
    }
    let victim = cluster.master_of("{a}");
    victim.kill();
    victim.restart();
    cluster.wait_until_whole().await;
    let mut connection = client(&cluster).get_connection().unwrap();
    for key in keys {
        let survived = cluster.master_of(key).port() != victim.port();
        let exists: RedisResult<bool> = connection.exists(key);
        assert_eq!(exists.unwrap(), survived, "{key}");
    }
}
