//! The bus on every store.

use hob_hot::{BusEvent, Subscription, Topic};
use hob_testkit::{LIMIT, every_store, wait_for};

/// The payload of the next message; fails the test after a generous while.
async fn heard(subscription: &mut Subscription) -> (String, String) {
    match tokio::time::timeout(LIMIT, subscription.next()).await {
        Ok(Some(BusEvent::Message { channel, payload, .. })) => (
            String::from_utf8_lossy(&channel).into_owned(),
            String::from_utf8_lossy(&payload).into_owned(),
        ),
        other => panic!("{other:?}"),
    }
}

fn pair(channel: &str, payload: &str) -> (String, String) {
    (channel.to_owned(), payload.to_owned())
}

every_store! {
    async fn messages_reach_the_subscribers_of_their_channel_in_order(store: Store) {
        let bus = store.hot().bus();
        let mut first = bus.subscribe(&[Topic::channel("a"), Topic::channel("b")], LIMIT).await.unwrap();
        let mut second = bus.subscribe(&[Topic::channel("b")], LIMIT).await.unwrap();
        for (channel, payload) in [("a", "1"), ("b", "2"), ("c", "3"), ("a", "4")] {
            store.hot().publish(channel, payload).await.unwrap();
        }
        assert_eq!(heard(&mut second).await, pair("b", "2"));
        // Different masters of a Cluster may pass messages on in any order between them.
        let mut all = [heard(&mut first).await, heard(&mut first).await, heard(&mut first).await];
        all.sort();
        assert_eq!(all, [pair("a", "1"), pair("a", "4"), pair("b", "2")]);
    }

    async fn a_pattern_hears_every_channel_that_matches(store: Store) {
        let mut subscription =
            store.hot().bus().subscribe(&[Topic::pattern("events:*")], LIMIT).await.unwrap();
        store.hot().publish("other", "0").await.unwrap();
        store.hot().publish("events:user.online", "1").await.unwrap();
        let event = tokio::time::timeout(LIMIT, subscription.next()).await.unwrap().unwrap();
        let (channel, payload) = ("events:user.online".into(), "1".into());
        assert_eq!(event, BusEvent::Message { channel, pattern: Some("events:*".into()), payload });
    }

    async fn a_dropped_subscription_is_unsubscribed(store: Store) {
        let bus = store.hot().bus();
        let kept = bus.subscribe(&[Topic::channel("kept")], LIMIT).await.unwrap();
        drop(bus.subscribe(&[Topic::channel("dropped")], LIMIT).await.unwrap());
        wait_for("the channel to have no listener", LIMIT, async || {
            let mut channels: Vec<String> = Vec::new();
            for master in store.hot().masters().await.unwrap() {
                channels.extend(master.run::<Vec<String>>(hob_hot::cmd("PUBSUB").arg("CHANNELS")).await.unwrap());
            }
            if channels == ["kept"] { Ok(()) } else { Err(channels) }
        })
        .await;
        drop(kept);
    }

    async fn a_slow_subscriber_is_told_that_it_missed_messages(store: Store) {
        let mut subscription = store.hot().bus().subscribe(&[Topic::channel("busy")], LIMIT).await.unwrap();
        for number in 0..20_000 {
            store.hot().publish("busy", number.to_string()).await.unwrap();
        }
        let mut heard = 0;
        while let BusEvent::Message { .. } = tokio::time::timeout(LIMIT, subscription.next()).await.unwrap().unwrap() {
            heard += 1;
        }
        assert!((1..20_000).contains(&heard), "{heard}");
        store.hot().publish("busy", "after").await.unwrap();
        wait_for("the message after the gap", LIMIT, async || {
            matches!(subscription.next().await, Some(BusEvent::Message { payload, .. }) if payload == "after")
        })
        .await;
    }
}
