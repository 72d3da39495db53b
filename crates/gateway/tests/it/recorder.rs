//! An upstream that records the bytes it gets, request by request, as a strict server reads them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hob_testkit::LIMIT;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A request as it arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// The first line.
    pub(crate) line: String,
    /// The names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }

    /// The method and the target.
    pub(crate) fn target(&self) -> &str {
        self.line.rsplit_once(' ').map_or("", |(target, _)| target)
    }
}

/// Answers every request with 200, or with 101 if it has an `Upgrade`.
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Result<Received, String>>>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Recorder {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::<Mutex<Vec<_>>>::default();
        let log = Arc::clone(&received);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(record(stream, Arc::clone(&log)));
            }
        });
        Self { address, received, serving }
    }

    /// Every request so far; panics if some bytes were not a request.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().iter().map(|request| request.clone().expect("a valid request")).collect()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn record(stream: TcpStream, log: Arc<Mutex<Vec<Result<Received, String>>>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let request = match read_request(&mut stream).await {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(problem) => return log.lock().push(Err(problem)),
        };
        let upgrade = request.header("upgrade").first().map(|protocol| (*protocol).to_owned());
        log.lock().push(Ok(request));
        let answer = match &upgrade {
            Some(protocol) => {
                format!(
                    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: {protocol}\r\n\r\n"
                )
            }
            None => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_owned(),
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
        if upgrade.is_some() {
            // The other protocol: everything is sent back.
            let (mut from, mut to) = stream.into_inner().into_split();
            let _ = tokio::io::copy(&mut from, &mut to).await;
            return;
        }
    }
}

/// Reads one request; `None` at the end. A request whose sender disconnects before its end did not arrive.
async fn read_request(stream: &mut BufReader<TcpStream>) -> Result<Option<Received>, String> {
    let Some(line) = read_line(stream).await? else { return Ok(None) };
    if line.split(' ').count() != 3 || !line.ends_with(" HTTP/1.1") {
        return Err(format!("not a request line: {line:?}"));
    }
    let mut request = Received { line, ..Received::default() };
    loop {
        let Some(line) = read_line(stream).await? else { return Ok(None) };
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(": ") else {
            return Err(format!("not a header: {line:?}"));
        };
        if name.is_empty() || name.contains([' ', '\t']) || value.contains(['\r', '\n', '\0']) {
            return Err(format!("not a header: {line:?}"));
        }
        request.headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    if request.header("host").len() != 1 {
        return Err(format!("not one Host: {request:?}"));
    }
    match (&request.header("content-length")[..], &request.header("transfer-encoding")[..]) {
        ([], []) => {}
        ([length], []) => {
            let Ok(length) = length.parse::<u32>() else { return Err(format!("bad length: {request:?}")) };
            let mut body = vec![0; length as usize];
            if stream.read_exact(&mut body).await.is_err() {
                return Ok(None);
            }
            request.body = body;
        }
        ([], ["chunked"]) => match read_chunks(stream).await? {
            Some(body) => request.body = body,
            None => return Ok(None),
        },
        _ => return Err(format!("two lengths: {request:?}")),
    }
    Ok(Some(request))
}

async fn read_chunks(stream: &mut BufReader<TcpStream>) -> Result<Option<Vec<u8>>, String> {
    let mut body = Vec::new();
    loop {
        let Some(size) = read_line(stream).await? else { return Ok(None) };
        let Ok(size) = usize::from_str_radix(&size, 16) else {
            return Err(format!("bad chunk size {size:?}"));
        };
        let mut chunk = vec![0; size];
        if stream.read_exact(&mut chunk).await.is_err() {
            return Ok(None);
        }
        body.extend(chunk);
        match read_line(stream).await? {
            None => return Ok(None),
            Some(line) if !line.is_empty() => return Err(format!("no end of a chunk: {line:?}")),
            Some(_) if size == 0 => return Ok(Some(body)),
            Some(_) => {}
        }
    }
}

/// A line that ends with CR LF; `None` at the end of the stream.
async fn read_line(stream: &mut BufReader<TcpStream>) -> Result<Option<String>, String> {
    let mut line = Vec::new();
    match stream.read_until(b'\n', &mut line).await {
        Ok(_) if line.ends_with(b"\n") => {}
        _ => return Ok(None),
    }
    let text = String::from_utf8_lossy(&line).into_owned();
    match text.strip_suffix("\r\n") {
        Some(text) if !text.contains('\r') => Ok(Some(text.to_owned())),
        _ => Err(format!("a bare CR or LF: {text:?}")),
    }
}

/// Sends bytes, and reads until the gateway closes the connection.
pub(crate) async fn exchange(gateway: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(gateway).await.unwrap();
    // The gateway may refuse the request before it has read all of it.
    let _ = stream.write_all(bytes).await;
    let mut read = Vec::new();
    let _ =
        tokio::time::timeout(LIMIT, stream.read_to_end(&mut read)).await.expect("the connection is closed");
    String::from_utf8_lossy(&read).into_owned()
}
