//! Compares the engine with a real redis-server: random sequences over the whole subset must give the same replies,
//! byte for byte, and leave the same keys.

mod found;
mod generate;
mod libraries;
mod pair;
mod server;
mod streams;
mod wire;

use hob_testkit::{RedisServer, budget};
use proptest::test_runner::{Config, TestError, TestRunner};

use generate::{Step, library_calls, sequence};
use pair::{EngineServer, Pair};
use proptest::strategy::BoxedStrategy;

mod slow {
    use super::*;

    #[test]
    fn random_sequences_reply_as_on_redis() {
        compare(&sequence());
    }

    #[test]
    fn random_commands_on_streams_reply_as_on_redis() {
        compare(&streams::sequence());
    }

    #[test]
    fn random_library_calls_reply_as_on_redis() {
        compare(&library_calls());
    }

    fn compare(sequences: &BoxedStrategy<(&'static str, Vec<Step>)>) {
        let redis = RedisServer::start();
        let engine = EngineServer::start();
        let count = std::env::var("HOB_SEQUENCES").ok().and_then(|count| count.parse().ok());
        let config = Config {
            cases: count.unwrap_or(budget(400, 20_000)),
            max_shrink_iters: 4_000,
            failure_persistence: None,
            ..Config::default()
        };
        let outcome = TestRunner::new(config).run(sequences, |(protocol, steps)| {
            Pair::connect(redis.port(), engine.port(), protocol).play(&steps)
        });
        if let Err(TestError::Fail(reason, (protocol, steps))) = outcome {
            let steps: Vec<String> = steps.iter().map(|step| format!("  {step}")).collect();
            panic!("RESP{protocol}: {reason}\n{}", steps.join("\n"));
        }
        outcome.unwrap();
    }
}
