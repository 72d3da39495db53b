//! Attachments: references to files that are stored elsewhere. Hob does not fetch them.

use serde::{Deserialize, Serialize};
use url::Url;

use crate::error::Refusal;

/// The most attachments of a message.
pub(crate) const MAX_ATTACHMENTS: usize = 8;
const MAX_URL_BYTES: usize = 2_048;
const MAX_NAME_BYTES: usize = 255;
const MAX_MEDIA_TYPE_BYTES: usize = 127;
/// The largest integer that is exact in JavaScript.
const MAX_SIZE: u64 = (1 << 53) - 1;

/// A reference to a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    pub url: String,
    pub name: String,
    /// Such as `image/png`.
    pub media_type: String,
    /// In bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// Which URLs attachments may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttachmentUrls {
    Https,
    HttpsAndHttp,
}

/// Checks the attachments of a message.
pub(crate) fn check(attachments: &[Attachment], urls: AttachmentUrls) -> Result<(), Refusal> {
    if attachments.len() > MAX_ATTACHMENTS {
        return Err(bad("at most 8"));
    }
    attachments.iter().try_for_each(|attachment| check_one(attachment, urls))
}

fn check_one(attachment: &Attachment, urls: AttachmentUrls) -> Result<(), Refusal> {
    let Attachment { url, name, media_type, size } = attachment;
    if !is_url(url, urls) {
        return Err(bad(match urls {
            AttachmentUrls::Https => "url: an absolute https URL, at most 2048 bytes, without a password",
            AttachmentUrls::HttpsAndHttp => {
                "url: an absolute https or http URL, at most 2048 bytes, without a password"
            }
        }));
    }
    if name.trim().is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(bad("name: 1 to 255 bytes, without control characters"));
    }
    if !is_media_type(media_type) {
        return Err(bad("media_type: such as image/png, at most 127 bytes"));
    }
    if size.is_some_and(|size| size > MAX_SIZE) {
        return Err(bad("size: at most 2^53 - 1"));
    }
    Ok(())
}

fn bad(reason: &str) -> Refusal {
    Refusal::InvalidField { field: "attachments", reason: reason.to_owned() }
}

/// Whether this is an absolute URL in its encoded form, so that it means the same to every client.
fn is_url(text: &str, urls: AttachmentUrls) -> bool {
    let is_encoded = |byte: u8| byte.is_ascii_graphic() && !br#""\<>`{}|^"#.contains(&byte);
    if text.len() > MAX_URL_BYTES || !text.bytes().all(is_encoded) {
        return false;
    }
    let Ok(url) = Url::parse(text) else { return false };
    let is_allowed = match url.scheme() {
        "https" => true,
        "http" => urls == AttachmentUrls::HttpsAndHttp,
        _ => false,
    };
    is_allowed && url.has_host() && url.username().is_empty() && url.password().is_none()
}

fn is_media_type(text: &str) -> bool {
    let is_token = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    let parts = text.split_once('/');
    text.len() <= MAX_MEDIA_TYPE_BYTES && parts.is_some_and(|(kind, rest)| is_token(kind) && is_token(rest))
}

#[cfg(test)]
mod tests {
    use super::{AttachmentUrls, is_media_type, is_url};

    #[test]
    fn urls_are_absolute_and_encrypted_unless_http_is_allowed() {
        for url in
            ["https://files.example/a.png", "https://files.example:8443/a%20b?x=1#y", "https://[::1]/a"]
        {
            assert!(is_url(url, AttachmentUrls::Https), "{url}");
        }
        let http = "http://files.example/a.png";
        assert!(!is_url(http, AttachmentUrls::Https));
        assert!(is_url(http, AttachmentUrls::HttpsAndHttp));
        for url in [
            "",
            "/a.png",
            "//files.example/a.png",
            "https://",
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "https://anna:secret@files.example/a",
            "https://anna@files.example/a",
            "https://files.example/a b",
            "https://files.example/\u{e4}",
            "https://files.example/\"",
            " https://files.example/",
            "https://files.example/\n",
        ] {
            assert!(!is_url(url, AttachmentUrls::HttpsAndHttp), "{url:?}");
        }
        assert!(!is_url(&format!("https://files.example/{}", "a".repeat(2_048)), AttachmentUrls::Https));
    }

    #[test]
    fn media_types_have_two_parts() {
        assert!(is_media_type("image/png") && is_media_type("application/vnd.api+json"));
        for text in ["", "image", "image/", "/png", "image/png; q=1", "image/p ng", "a/b/c"] {
            assert!(!is_media_type(text), "{text}");
        }
    }
}
