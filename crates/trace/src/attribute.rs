//! The names of attributes, by OpenTelemetry's semantic conventions. Names that the conventions do not have start with
//! `hob.`.

pub const HTTP_REQUEST_METHOD: &str = "http.request.method";
pub const HTTP_RESPONSE_STATUS_CODE: &str = "http.response.status_code";
pub const HTTP_ROUTE: &str = "http.route";
pub const URL_PATH: &str = "url.path";
pub const URL_SCHEME: &str = "url.scheme";
pub const SERVER_ADDRESS: &str = "server.address";
pub const SERVER_PORT: &str = "server.port";
pub const CLIENT_ADDRESS: &str = "client.address";
pub const NETWORK_PEER_ADDRESS: &str = "network.peer.address";
/// Why the operation failed: a status, or a word from a fixed set.
pub const ERROR_TYPE: &str = "error.type";

pub const MESSAGING_SYSTEM: &str = "messaging.system";
pub const MESSAGING_OPERATION_NAME: &str = "messaging.operation.name";
pub const MESSAGING_OPERATION_TYPE: &str = "messaging.operation.type";
pub const MESSAGING_DESTINATION_NAME: &str = "messaging.destination.name";
pub const MESSAGING_MESSAGE_ID: &str = "messaging.message.id";

/// The rule that refused a request.
pub const RATE_LIMIT_RULE: &str = "hob.rate_limit.rule";
/// Why the gateway refused a request.
pub const REFUSAL: &str = "hob.refusal";
pub const MONITOR_ID: &str = "hob.monitor.id";
pub const CHECK_KIND: &str = "hob.check.kind";
pub const CHECK_RESULT: &str = "hob.check.result";
pub const PIPELINE_RUN: &str = "hob.pipeline.run";
pub const PIPELINE_NAME: &str = "hob.pipeline.name";
pub const PIPELINE_STEP: &str = "hob.pipeline.step";
pub const PIPELINE_ITEM: &str = "hob.pipeline.item";
pub const PIPELINE_ATTEMPT: &str = "hob.pipeline.attempt";
pub const QUOTA_NAME: &str = "hob.quota.name";
/// How long a call waited for its quota and its host, in milliseconds.
pub const QUOTA_WAIT_MS: &str = "hob.quota.wait_ms";
