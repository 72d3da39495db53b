//! Tells systemd when the server is ready and when it stops (`Type=notify`).

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

pub(crate) fn ready() {
    notify("READY=1");
}

pub(crate) fn stopping() {
    notify("STOPPING=1");
}

fn notify(state: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&address, state) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

/// An address that starts with `@` is an abstract name, any other is a path.
fn send(address: &OsString, state: &str) -> io::Result<()> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(address)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_sent_to_a_path_and_to_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("hob-test-{}", std::process::id());
        let sockets = [
            (path.clone().into_os_string(), SocketAddr::from_pathname(&path).unwrap()),
            (format!("@{name}").into(), SocketAddr::from_abstract_name(&name).unwrap()),
        ];
        for (address, socket) in sockets {
            let receiver = UnixDatagram::bind_addr(&socket).unwrap();
            send(&address, "READY=1").unwrap();
            let mut buffer = [0; 64];
            let size = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..size], b"READY=1");
        }
    }
}
