//! The bus on every store.

use std::time::Duration;

use hob_fixtures::every_store;
use hob_store::{BusEvent, ChannelFilter, Subscription};
use hob_testkit::{LIMIT, wait_for};

/// The next event. Fails the test after `LIMIT`.
async fn next(subscription: &mut Subscription) -> BusEvent {
    tokio::time::timeout(LIMIT, subscription.next()).await.unwrap().unwrap()
}

/// The channel and payload of the next message.
async fn next_message(subscription: &mut Subscription) -> (String, String) {
    match next(subscription).await {
        BusEvent::Message { channel, payload, .. } => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (text(&channel), text(&payload))
        }
        BusEvent::Missed => panic!("messages were missed"),
    }
}

every_store! {
    async fn messages_reach_the_subscribers_of_their_channel_in_order(test_store: TestStore) {
        let bus = test_store.store().bus();
        let mut both = bus.subscribe(&[ChannelFilter::channel("a"), ChannelFilter::channel("b")]).await.unwrap();
        let mut one = bus.subscribe(&[ChannelFilter::channel("b")]).await.unwrap();
        for number in 0..100 {
            for channel in ["a", "b", "c"] {
                bus.publish(channel, number.to_string()).await.unwrap();
            }
        }
        let mut numbers = [0, 0];
        for _ in 0..200 {
            // The order across channels is not defined: in a Cluster, they are served by different masters.
            let (channel, number) = next_message(&mut both).await;
            let expected = &mut numbers[usize::from(channel == "b")];
            assert_eq!(number, expected.to_string());
            *expected += 1;
        }
        assert_eq!(numbers, [100, 100]);
        for number in 0..100 {
            assert_eq!(next_message(&mut one).await, ("b".to_owned(), number.to_string()));
        }
    }

    async fn pattern_receives_every_matching_channel(test_store: TestStore) {
        let mut subscription =
            test_store.store().bus().subscribe(&[ChannelFilter::pattern("events:*")]).await.unwrap();
        test_store.store().bus().publish("other", "0").await.unwrap();
        test_store.store().bus().publish("events:user.online", "1").await.unwrap();
        let event = tokio::time::timeout(LIMIT, subscription.next()).await.unwrap().unwrap();
        let (channel, payload) = ("events:user.online".into(), "1".into());
        assert_eq!(event, BusEvent::Message { channel, pattern: Some("events:*".into()), payload });
    }

    async fn listener_reports_at_first_that_it_may_have_missed_messages(test_store: TestStore) {
        let bus = test_store.store().bus();
        let mut listener = bus.listen(vec![ChannelFilter::channel("a")]);
        assert_eq!(tokio::time::timeout(LIMIT, listener.next()).await.unwrap(), BusEvent::Missed);
        bus.publish("a", "1").await.unwrap();
        let message = BusEvent::Message { channel: "a".into(), pattern: None, payload: "1".into() };
        assert_eq!(tokio::time::timeout(LIMIT, listener.next()).await.unwrap(), message);
    }

    async fn dropping_a_subscription_unsubscribes(test_store: TestStore) {
        let bus = test_store.store().bus();
        let kept = bus.subscribe(&[ChannelFilter::channel("kept")]).await.unwrap();
        drop(bus.subscribe(&[ChannelFilter::channel("dropped")]).await.unwrap());
        wait_for("the channel to have no subscriber", LIMIT, async || {
            let mut channels: Vec<String> = Vec::new();
            for master in test_store.store().masters().await.unwrap() {
                channels.extend(master.run::<Vec<String>>(hob_store::cmd("PUBSUB").arg("CHANNELS")).await.unwrap());
            }
            if channels == ["kept"] { Ok(()) } else { Err(channels) }
        })
        .await;
        drop(kept);
    }

    async fn slow_subscriber_receives_missed(test_store: TestStore) {
        let mut subscription = test_store.store().bus().subscribe(&[ChannelFilter::channel("busy")]).await.unwrap();
        for number in 0..20_000 {
            test_store.store().bus().publish("busy", number.to_string()).await.unwrap();
        }
        let mut received = 0;
        while let BusEvent::Message { .. } = next(&mut subscription).await {
            received += 1;
        }
        // Messages that were queued before the gap may arrive first, and the queue may be full until then.
        wait_for("a message after the gap", LIMIT, async || {
            test_store.store().bus().publish("busy", "after").await.unwrap();
            while let Ok(event) = tokio::time::timeout(Duration::from_millis(50), subscription.next()).await {
                match event.unwrap() {
                    BusEvent::Message { payload, .. } if payload == "after" => return true,
                    _ => received += 1,
                }
            }
            false
        })
        .await;
        assert!((1..20_000).contains(&received), "{received}");
    }
}
