//! Static files of the console. They are part of the binary, and their names contain a hash so that browsers can cache them.

use std::sync::LazyLock;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use crate::{Access, Path, Problem, Routes};

struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! asset {
    ($name:literal, $kind:literal) => {
        Asset { name: $name, kind: $kind, bytes: include_bytes!(concat!("../../assets/", $name)) }
    };
}

const ASSETS: [Asset; 4] = [
    asset!("forms.js", "text/javascript; charset=utf-8"),
    asset!("hob.css", "text/css; charset=utf-8"),
    asset!("hob.svg", "image/svg+xml"),
    asset!("live.js", "text/javascript; charset=utf-8"),
];

/// The served names: `hob-1f0c….css`.
static SERVED: LazyLock<Vec<String>> = LazyLock::new(|| ASSETS.iter().map(Asset::served_as).collect());

/// The URL of an asset.
#[must_use]
pub fn href(name: &str) -> String {
    let at = ASSETS.iter().position(|asset| asset.name == name);
    debug_assert!(at.is_some(), "{name} is not among the assets");
    at.map_or_else(String::new, |at| format!("/assets/{}", SERVED[at]))
}

pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Routes<S> {
    Routes::new().page(Access::Public, "/assets/{file}", serve)
}

async fn serve(Path(file): Path<String>) -> Result<Response, Problem> {
    let at = SERVED.iter().position(|served| *served == file);
    let asset = at.map(|at| &ASSETS[at]).ok_or_else(|| Problem::not_found("file"))?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(asset.kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable")),
    ];
    Ok((headers, asset.bytes).into_response())
}

impl Asset {
    fn served_as(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.bytes);
        let hash: String = digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let (stem, ending) = self.name.rsplit_once('.').unwrap_or((self.name, ""));
        format!("{stem}-{hash}.{ending}")
    }
}
