//! Nodes that are killed.

use std::net::SocketAddr;

use hob_testkit::{KillableNode, LIMIT, wait_for};
use tokio::net::{TcpListener, TcpStream};

async fn listen() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    address
}

#[tokio::test]
async fn tasks_of_a_killed_node_end() {
    let (killed, other) = (KillableNode::start(listen()).await, KillableNode::start(listen()).await);
    let address = *killed;
    TcpStream::connect(address).await.unwrap();
    killed.kill();
    wait_for("the port to be closed", LIMIT, async || TcpStream::connect(address).await.is_err()).await;
    TcpStream::connect(*other).await.unwrap();
}

#[tokio::test]
#[should_panic(expected = "the node did not start: ")]
async fn failed_start_fails_the_test() {
    let _ = KillableNode::start(async { assert!(std::env::args().next().is_none(), "a failure") }).await;
}
