//! Signatures of webhooks: `X-Hob-Signature: t=<unix seconds>,v1=<hex>`, where the hex is the HMAC-SHA256 of
//! `<unix seconds>.<body>` with the shared secret. The time is signed too, so that an old message cannot be replayed.

use std::fmt::Write as _;

use hob_service::config::Secret;
use ring::hmac;

pub const HEADER: &str = "x-hob-signature";

/// The value of the header for a body.
#[must_use]
pub fn sign(secret: &Secret, unix_s: u64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.reveal().as_bytes());
    let mut context = hmac::Context::with_key(&key);
    context.update(format!("{unix_s}.").as_bytes());
    context.update(body);
    let mut header = format!("t={unix_s},v1=");
    for byte in context.sign().as_ref() {
        let _ = write!(header, "{byte:02x}");
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with `printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac s3cret`.
    #[test]
    fn signature_matches_openssl() {
        let signed = sign(&Secret::from("s3cret".to_owned()), 1_700_000_000, br#"{"a":1}"#);
        assert_eq!(
            signed,
            "t=1700000000,v1=1698a50bc74d1ff1db85c4e0a5297c2ad9fdba245d5737cdb789e4cc6e098940"
        );
    }
}
