//! Starts servers as the tests do, to try something by hand: `cargo run -p hob-testkit -- redis postgres`.
//! Prints a line per server, its name and its address, and runs until it is killed.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a person at a terminal")]

use std::any::Any;
use std::process::ExitCode;

use hob_testkit::{Browser, Postgres, RedisCluster, RedisServer, SentinelSet, Window};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut servers: Vec<Box<dyn Any>> = Vec::new();
    for name in std::env::args().skip(1) {
        let (url, server): (String, Box<dyn Any>) = match name.as_str() {
            "redis" => with_url(RedisServer::start(), RedisServer::url),
            "cluster" => with_url(RedisCluster::start(), RedisCluster::url),
            "sentinel" => with_url(SentinelSet::start(), SentinelSet::url),
            "postgres" => with_url(Postgres::start(), Postgres::url),
            "browser" => {
                let browser = Browser::start();
                let window = browser.open(Window::default()).await;
                (browser.url(), Box::new((window, browser)))
            }
            other => {
                eprintln!(
                    "hob-testkit: unknown server {other}; use redis, cluster, sentinel, postgres or browser"
                );
                return ExitCode::FAILURE;
            }
        };
        println!("{name} {url}");
        servers.push(server);
    }
    if servers.is_empty() {
        eprintln!(
            "hob-testkit: no server given; use one or more of redis, cluster, sentinel, postgres, browser"
        );
        return ExitCode::FAILURE;
    }
    std::future::pending().await
}

fn with_url<S: Any>(server: S, url: fn(&S) -> String) -> (String, Box<dyn Any>) {
    (url(&server), Box::new(server))
}
