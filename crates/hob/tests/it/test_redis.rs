//! `hob test-redis` with real clients, and the recipes of its page.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use hob_testkit::{node_modules, python};
use rustix::process::{Pid, Signal, kill_process};

use crate::program::hob;

const PAGE: &str = include_str!("../../../../docs/test-redis.md");

/// The file of this name on the page: the code after its name.
fn recipe(name: &str) -> &'static str {
    let at = PAGE.find(&format!("`{name}`:\n")).unwrap_or_else(|| panic!("{name} is not on the page"));
    let (_, code) = PAGE[at..].split_once("```").unwrap();
    let (_, code) = code.split_once('\n').unwrap();
    code.split_once("\n```").unwrap().0
}

fn folder_with(files: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in files {
        std::fs::write(folder.path().join(name), recipe(name)).unwrap();
    }
    folder
}

#[track_caller]
fn succeeds(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    out.into_owned()
}

/// The recipes call `hob`.
fn path_with_hob() -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_hob")).parent().unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default())
}

#[test]
fn pytest_recipe_works() {
    let folder = folder_with(&["mine.toml", "conftest.py", "test_cart.py"]);
    let mut pytest = Command::new(python());
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).current_dir(folder.path());
    let report = succeeds(&pytest.env("PATH", path_with_hob()).output().unwrap());
    assert!(report.contains("2 passed"), "{report}");
    // A test that breaks the schema fails, and so does the run.
    let wrong = "def test_wrong(store):\n    try:\n        store.set('cart:7', 3)\n    except Exception:\n        pass\n";
    std::fs::write(folder.path().join("test_wrong.py"), wrong).unwrap();
    let output = pytest.output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && report.contains("shop.cart: missing-ttl (1)"), "{report}");
}

#[test]
fn vitest_recipe_works() {
    let folder = folder_with(&["mine.toml", "vitest.config.mjs", "redis.setup.mjs", "cart.test.mjs"]);
    std::os::unix::fs::symlink(node_modules(), folder.path().join("node_modules")).unwrap();
    let mut vitest = Command::new("node");
    vitest.arg(node_modules().join("vitest/vitest.mjs")).args(["run", "--no-color"]);
    vitest.current_dir(folder.path()).env("PATH", path_with_hob());
    let report = succeeds(&vitest.output().unwrap());
    assert!(report.contains("2 passed"), "{report}");
}

#[test]
fn go_recipe_works() {
    const TEST: &str = r#"package shop

import (
	"bufio"
	"net"
	"os"
	"strings"
	"testing"
)

func TestCart(t *testing.T) {
	connection, err := net.Dial("tcp", strings.TrimPrefix(os.Getenv("REDIS_URL"), "redis://"))
	if err != nil {
		t.Fatal(err)
	}
	replies := bufio.NewReader(connection)
	call := func(command string) string {
		if _, err := connection.Write([]byte(command + "\r\n")); err != nil {
			t.Fatal(err)
		}
		reply, err := replies.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(reply)
	}
	if reply := call(os.Getenv("CART")); reply != "+OK" && !strings.HasPrefix(reply, "-GUARD") {
		t.Fatal(reply)
	}
}
"#;
    let folder = folder_with(&["mine.toml", "main_test.go"]);
    std::fs::write(folder.path().join("cart_test.go"), TEST).unwrap();
    std::fs::write(folder.path().join("go.mod"), "module example.com/shop\n\ngo 1.18\n").unwrap();
    let test = |cart: &str| {
        let mut go = Command::new("go");
        go.args(["test", "-count=1", "./..."]).current_dir(folder.path());
        go.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go")).env("PATH", path_with_hob());
        go.envs([("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=mod")]).env("CART", cart);
        go.output().expect("go is missing; `cargo xtask test` installs it")
    };
    succeeds(&test("SET cart:7 3 EX 60"));
    let output = test("SET cart:7 3");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && report.contains("shop.cart: missing-ttl (1)"), "{report}");
}

/// Where Debian's package `junit5` has its libraries.
const JUNIT: &str = "/usr/share/java/*";

#[test]
fn junit_recipe_works() {
    const TEST: &str = r#"
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.Socket;
import java.net.URI;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(RedisExtension.class)
class CartTest {
    @Test
    void cart() throws Exception {
        URI url = URI.create(RedisExtension.url);
        try (Socket socket = new Socket(url.getHost(), url.getPort())) {
            socket.getOutputStream().write((System.getenv("CART") + "\r\n").getBytes());
            String reply = new BufferedReader(new InputStreamReader(socket.getInputStream())).readLine();
            assertTrue(reply.equals("+OK") || reply.startsWith("-GUARD"), reply);
        }
    }
}
"#;
    let folder = folder_with(&["mine.toml", "RedisExtension.java"]);
    std::fs::write(folder.path().join("CartTest.java"), TEST).unwrap();
    let mut compile = Command::new("javac");
    compile.args(["-cp", JUNIT, "-d", "classes", "RedisExtension.java", "CartTest.java"]);
    let missing = "Java or JUnit is missing; `cargo xtask test` installs them";
    succeeds(&compile.current_dir(folder.path()).output().expect(missing));
    let test = |cart: &str| {
        let mut java = Command::new("java");
        java.args(["-cp", &format!("{JUNIT}:classes"), "org.junit.platform.console.ConsoleLauncher"]);
        java.args(["--scan-classpath", "classes", "--disable-banner"]).current_dir(folder.path());
        java.env("PATH", path_with_hob()).env("CART", cart).output().unwrap()
    };
    let report = succeeds(&test("SET cart:7 3 EX 60"));
    assert!(report.contains("1 tests successful"), "{report}");
    let output = test("SET cart:7 3");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && report.contains("shop.cart: missing-ttl (1)"), "{report}");
}

/// Runs a Python program as the command of `hob test-redis`.
fn run(program: &str) -> Output {
    let folder = folder_with(&["mine.toml"]);
    let schema = folder.path().join("mine.toml");
    let mut command = hob();
    command.arg("test-redis").arg("--schema").arg(schema).arg("--").arg(python()).args(["-c", program]);
    command.output().unwrap()
}

const CLIENT: &str = r#"
import os, time
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
store = redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True, retry=Retry(NoBackoff(), 0))
hob = lambda *words: store.execute_command("HOB", *words)
def fails(error, call):
    try:
        call()
    except error as found:
        return str(found)
    raise AssertionError("no error")
"#;

#[test]
fn clock_and_faults_follow_the_commands_of_a_test() {
    let program = r#"
pipe = store.pipeline(transaction=False)
pipe.set("cart:1", 1, ex=60).get("cart:1")
pipe.execute_command("HOB", "CLOCK", "ADVANCE", "61s")
pipe.get("cart:1")
assert pipe.execute() == [True, "1", "OK", None], "in order"
hob("CLOCK", "FREEZE")
assert hob("CLOCK") == hob("CLOCK")
store.set("cart:1", 1, px=1)
assert store.exists("cart:1") == 1
hob("CLOCK", "RESUME")
assert store.blpop(["queue"], timeout=1) is None
with store.pipeline() as transaction:
    assert transaction.set("cart:2", 2).expire("cart:2", 60).execute() == [True, True]
hob("FAULT", "READONLY")
assert store.get("cart:2") == "2"
fails(redis.ReadOnlyError, lambda: store.set("cart:2", 3, ex=60))
assert store.set("cart:2", 3, ex=60)
hob("FAULT", "LOADING", "2")
fails(redis.BusyLoadingError, lambda: store.get("cart:2"))
fails(redis.BusyLoadingError, lambda: store.get("cart:2"))
assert store.get("cart:2") == "3"
hob("FAULT", "DISCONNECT")
fails(redis.ConnectionError, lambda: store.get("cart:2"))
assert store.get("cart:2") == "3"
hob("FAULT", "LATENCY", "300ms")
begun = time.monotonic()
store.get("cart:2")
assert time.monotonic() - begun >= 0.3
hob("FAULT", "READONLY", "5")
hob("FAULT", "CLEAR")
hob("FAULT", "FLUSH")
assert store.dbsize() == 0
listener = store.pubsub()
listener.subscribe("news")
assert listener.get_message(timeout=60)["type"] == "subscribe"
store.publish("news", "hello")
assert listener.get_message(timeout=60)["data"] == "hello"
assert "usage: HOB" in fails(redis.ResponseError, lambda: hob("NONSENSE"))
assert "2287" in fails(redis.ResponseError, lambda: hob("CLOCK", "ADVANCE", "99999999999d"))
hob("CLOCK", "ADVANCE", "36500d")
assert store.set("cart:3", 1, ex=60) and 0 < store.ttl("cart:3") <= 60
assert "2287" in fails(redis.ResponseError, lambda: hob("CLOCK", "ADVANCE", "99999999999d"))
assert hob("VIOLATIONS") == []
"#;
    let report = succeeds(&run(&format!("{CLIENT}{program}")));
    assert!(report.starts_with("redis://127.0.0.1:"), "{report}");
    assert!(report.ends_with("all changes match the schemas\n"), "{report}");
}

#[test]
fn change_that_breaks_the_schema_is_an_error_and_in_the_report() {
    let program = r#"
assert "never expires" in fails(redis.ResponseError, lambda: store.set("cart:1", 1))
assert "GUARD" in fails(redis.ResponseError, lambda: store.set("unknown", 1))
fails(redis.ResponseError, lambda: store.set("cart:1", "three", ex=60))
assert len(hob("VIOLATIONS")) == 3
hob("RESET")
"#;
    let output = run(&format!("{CLIENT}{program}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(4), "{out}{err}");
    for line in ["shop.cart: missing-ttl (1)", "shop.cart: misfit-value (1)", "undeclared: undeclared-key"] {
        assert!(out.contains(line), "{out}");
    }
    assert_eq!(run("raise SystemExit(7)").status.code(), Some(1));
}

/// A run that was cut short must not look like a success.
#[test]
fn signal_that_stops_the_command_is_a_failure() {
    let folder = folder_with(&["mine.toml"]);
    let mut command = hob();
    command
        .args(["test-redis", "--schema"])
        .arg(folder.path().join("mine.toml"))
        .args(["--", "sleep", "600"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut report = String::new();
    out.read_to_string(&mut report).unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{report}{error}");
    assert!(report.contains("all changes match") && error.contains("stopped by a signal"), "{report}{error}");
}
