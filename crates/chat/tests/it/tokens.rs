//! Tokens with real signatures, their expiry and refresh; and the origins that may connect.
//!
//! The keys were generated with `openssl genpkey` for these tests.

use hob_web::Service as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hob_chat::{Chat, Config};
use hob_fixtures::{Layout, TestApp, TestContext};
use hob_service::Period;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::client::Client;
use crate::harness::{NEEDS, config, room, start, user};

macro_rules! key {
    ($name:literal) => {
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/keys/", $name)
    };
}

/// Signs like an identity provider.
enum Signer {
    Rsa(RsaKeyPair),
    P256(EcdsaKeyPair),
}

impl Signer {
    fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::from_pkcs8(&der(key!("rsa.pem"))).unwrap())
    }

    fn p256() -> Self {
        Self::from_pkcs8(&der(key!("p256.pem")))
    }

    /// A key that is not configured.
    fn unknown() -> Self {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        Self::from_pkcs8(pkcs8.unwrap().as_ref())
    }

    fn from_pkcs8(pkcs8: &[u8]) -> Self {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &SystemRandom::new());
        Self::P256(pair.unwrap())
    }

    /// A token that expires in `left_s` seconds.
    fn token(&self, algorithm: &str, who: &str, left_s: i64) -> String {
        let claims = json!({ "sub": who, "exp": jiff::Timestamp::now().as_second() + left_s }).to_string();
        let header = json!({ "alg": algorithm, "typ": "JWT" }).to_string();
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = match self {
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
                    .unwrap();
                signature
            }
            Self::P256(pair) => pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap().as_ref().to_vec(),
        };
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn der(path: &str) -> Vec<u8> {
    let pem = std::fs::read_to_string(path).unwrap();
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    STANDARD.decode(body).unwrap()
}

async fn serve(config: Config) -> (TestContext, Chat, TestApp) {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let chat = start(context.context(), config).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    (context, chat, app)
}

fn key_files() -> Config {
    let token_public_keys = vec![key!("rsa.pub.pem").to_owned(), key!("p256.pub.pem").to_owned()];
    Config { token_public_keys, token_grace: Period::from_millis(500), ..config() }
}

async fn connect(app: &TestApp, token: &str) -> (Client, Value) {
    let mut client = Client::open(app).await;
    let reply = client.call(json!({ "connect": { "token": token } })).await;
    (client, reply)
}

/// The code with which a connection with a bad token is closed.
async fn refused(app: &TestApp, token: &str) -> u16 {
    let mut client = Client::open(app).await;
    client.send(json!({ "id": 1, "connect": { "token": token } }).to_string()).await;
    client.end().await
}

#[tokio::test]
async fn tokens_are_verified_with_public_key_files() {
    let (_context, chat, app) = serve(key_files()).await;
    let (rsa, p256) = (Signer::rsa(), Signer::p256());
    room(&chat, "r", &["anna", "bert"]).await;
    for (who, token) in
        [("anna", rsa.token("RS256", "anna", 600)), ("bert", p256.token("ES256", "bert", 600))]
    {
        let (mut client, reply) = connect(&app, &token).await;
        assert!(reply["connect"]["ttl"].as_u64().is_some_and(|ttl| (500..=600).contains(&ttl)), "{reply}");
        assert!(client.subscribe("conv:r").await["subscribe"].is_object());
        assert!(chat.is_user_online(&user(who)).await.unwrap());
    }
    for (why, token) in [
        ("an unknown key", Signer::unknown().token("ES256", "anna", 600)),
        ("an RSA signature for ES256", rsa.token("ES256", "anna", 600)),
        ("a P-256 signature for RS256", p256.token("RS256", "anna", 600)),
        ("an algorithm without a key", rsa.token("HS256", "anna", 600)),
        ("no user", rsa.token("RS256", "", 600)),
    ] {
        assert_eq!(refused(&app, &token).await, 3500, "{why}");
    }
    assert_eq!(
        chat.issue_token(&user("anna"), Duration::from_secs(60)),
        None,
        "a node with public keys cannot issue tokens"
    );
}

/// A client with an expired token receives an error that makes it request a new token. A connection is closed if its
/// token is not refreshed in time.
#[tokio::test]
async fn connection_is_closed_when_its_token_expires_unless_refreshed() {
    // Long enough for all requests before the expiry, even if the machine stalls.
    const LEFT_S: i64 = 8;
    let (_context, _chat, app) = serve(key_files()).await;
    let signer = Signer::p256();
    let (mut late, reply) = connect(&app, &signer.token("ES256", "anna", -60)).await;
    assert_eq!(reply["error"]["code"], 109, "{reply}");
    assert_eq!(late.end().await, 3005);

    let (mut renewed, _) = connect(&app, &signer.token("ES256", "anna", LEFT_S)).await;
    let (mut idle, reply) = connect(&app, &signer.token("ES256", "bert", LEFT_S)).await;
    let ttl = reply["connect"]["ttl"].as_i64().unwrap_or_default();
    assert!(reply["connect"]["expires"] == true && (1..=LEFT_S).contains(&ttl), "{reply}");
    let over = renewed.call(json!({ "refresh": { "token": signer.token("ES256", "anna", -60) } })).await;
    assert_eq!(over["error"]["code"], 109, "{over}");
    let more = renewed.call(json!({ "refresh": { "token": signer.token("ES256", "anna", 600) } })).await;
    assert!(more["refresh"]["ttl"].as_u64().is_some_and(|ttl| ttl > 500), "{more}");
    assert_eq!(idle.end().await, 3005);
    assert!(renewed.call(json!({ "ping": {} })).await["ping"].is_object(), "the connection stays open");
}

#[tokio::test]
async fn invalid_key_file_is_refused_at_startup() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    for path in [key!("rsa.pem"), "no/such/file.pem"] {
        let config = Config { token_public_keys: vec![path.to_owned()], ..config() };
        let error =
            Chat::open(context.context(), hob_service::Live::fixed(config)).await.unwrap_err().to_string();
        assert!(error.contains(path), "{error}");
    }
}

/// The status of a WebSocket upgrade with these headers.
async fn upgrade(app: &TestApp, headers: &[(&'static str, &str)]) -> u16 {
    let url = app.url("/connection/websocket").replace("http", "ws");
    let mut request = url.into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    match tokio_tungstenite::connect_async(request).await {
        Ok((_, response)) => response.status().as_u16(),
        Err(tungstenite::Error::Http(response)) => response.status().as_u16(),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn other_origins_can_connect_only_if_listed() {
    let origins = vec!["https://shop.example".to_owned()];
    let (_context, _chat, app) = serve(Config { origins, ..config() }).await;
    let own = format!("http://{}", app.address());
    let cross = ("sec-fetch-site", "cross-site");
    for (headers, status) in [
        (vec![], 101),
        (vec![("origin", own.as_str())], 101),
        (vec![("origin", "https://shop.example")], 101),
        (vec![("origin", "https://shop.example"), cross], 101),
        (vec![("origin", "http://shop.example")], 403),
        (vec![("origin", "https://shop.example.evil.example")], 403),
        (vec![("origin", "https://evil.example"), cross], 403),
        (vec![("origin", "null")], 403),
        (vec![cross], 403),
    ] {
        assert_eq!(upgrade(&app, &headers).await, status, "{headers:?}");
    }
}
