//! The OpenAPI document at `/api/openapi.json`, and Swagger UI at `/api/docs`.

use std::io::{self, Read as _};
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Redirect, Response};
use flate2::read::GzDecoder;
use utoipa::openapi::OpenApi;

use crate::{Access, Path, Problem, Routes};

const DOCUMENT: &str = "/api/openapi.json";

/// Swagger UI needs inline styles. Scripts come from this server only.
const POLICY: (HeaderName, HeaderValue) = (
    header::CONTENT_SECURITY_POLICY,
    HeaderValue::from_static(
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
         connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
);

/// The first bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

#[derive(Clone)]
struct Docs {
    json: Bytes,
    page: Arc<utoipa_swagger_ui::Config<'static>>,
}

/// The document is public, but the operations are not.
pub(crate) fn routes(document: &OpenApi) -> Routes {
    let json = document.to_json().unwrap_or_default().into();
    let page = Arc::new(utoipa_swagger_ui::Config::from(DOCUMENT));
    Routes::new()
        .page(Access::Public, DOCUMENT, json_document)
        .page(Access::Public, "/api/docs", async || Redirect::to("/api/docs/"))
        .page(Access::Public, "/api/docs/", async |State(docs): State<Docs>| docs.file("index.html"))
        .page(Access::Public, "/api/docs/{*file}", page_file)
        .with_state(Docs { json, page })
}

async fn json_document(State(docs): State<Docs>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], docs.json).into_response()
}

async fn page_file(State(docs): State<Docs>, Path(file): Path<String>) -> Result<Response, Problem> {
    docs.file(&file)
}

impl Docs {
    fn file(&self, name: &str) -> Result<Response, Problem> {
        let file = utoipa_swagger_ui::serve(name, Arc::clone(&self.page)).map_err(Problem::internal)?;
        let file = file.ok_or_else(|| Problem::not_found("file"))?;
        let kind = HeaderValue::from_str(&file.content_type).map_err(Problem::internal)?;
        let bytes = unpack(file.bytes.into_owned()).map_err(Problem::internal)?;
        Ok(([(header::CONTENT_TYPE, kind), POLICY], bytes).into_response())
    }
}

/// The files are compressed in the binary, except the one that is completed with the address of the document.
fn unpack(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    if !bytes.starts_with(&GZIP) {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    GzDecoder::new(bytes.as_slice()).read_to_end(&mut unpacked)?;
    Ok(unpacked)
}
