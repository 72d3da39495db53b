//! The metrics of the chat.

use hob_service::Metric;
use metrics::{counter, gauge};

const CONNECTIONS: &str = "hob_chat_connections";
const MESSAGES: &str = "hob_chat_messages_total";
const WEBHOOK_ATTEMPTS: &str = "hob_chat_webhook_attempts_total";
const DELIVERIES: &str = "hob_chat_deliveries_total";

const PROXY_REQUESTS: &str = "hob_chat_proxy_requests_total";

pub(crate) const METRICS: &[Metric] = &[
    Metric::gauge(CONNECTIONS, "Open client connections on this node."),
    Metric::counter(MESSAGES, "Messages sent through this node."),
    Metric::counter(
        DELIVERIES,
        "Publications delivered to clients of this node: messages, typing, presence.",
    ),
    Metric::counter(
        WEBHOOK_ATTEMPTS,
        "Attempts to send an event to a webhook, by outcome: delivered or failed.",
    )
    .by(&["outcome"]),
    Metric::counter(
        PROXY_REQUESTS,
        "Requests to the application, by kind (connect, refresh, subscribe, publish or rpc) and outcome: granted, refused, or \
         failed if there was no usable answer.",
    )
    .by(&["kind", "outcome"]),
];

pub(crate) fn connections(open: u64) {
    gauge!(CONNECTIONS).set(open as f64);
}

pub(crate) fn message() {
    counter!(MESSAGES).increment(1);
}

pub(crate) fn deliveries(count: u64) {
    counter!(DELIVERIES).increment(count);
}

pub(crate) fn proxy_asked(kind: &'static str, outcome: &'static str) {
    counter!(PROXY_REQUESTS, "kind" => kind, "outcome" => outcome).increment(1);
}

pub(crate) fn webhook_attempted(outcome: &'static str) {
    counter!(WEBHOOK_ATTEMPTS, "outcome" => outcome).increment(1);
}
