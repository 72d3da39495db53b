//! The Helm chart in `deploy/`: Helm renders it, and every manifest is valid for Kubernetes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hob_testkit::python;

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/hob")
}

fn helm(arguments: &[&str]) -> Output {
    let mut command = Command::new(python().with_file_name("helm"));
    command.args(arguments).output().unwrap()
}

/// The manifests with these values.
fn render(values: &[&str]) -> String {
    let chart = chart();
    let mut arguments = vec!["template", "test", chart.to_str().unwrap()];
    arguments.extend(values.iter().flat_map(|value| ["--set", value]));
    let rendered = helm(&arguments);
    assert!(rendered.status.success(), "{}", String::from_utf8_lossy(&rendered.stderr));
    String::from_utf8(rendered.stdout).unwrap()
}

fn assert_valid(manifests: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("manifests.yaml");
    std::fs::write(&file, manifests).unwrap();
    let mut validate = Command::new(python().with_file_name("kubernetes-validate"));
    let checked = validate.args(["--strict", "--quiet"]).arg(&file).output().unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert!(checked.status.success(), "{text}\n{manifests}");
}

#[test]
fn chart_has_no_mistakes() {
    let chart = chart();
    let linted = helm(&["lint", "--strict", chart.to_str().unwrap()]);
    assert!(linted.status.success(), "{}", String::from_utf8_lossy(&linted.stdout));
}

#[test]
fn one_node_needs_no_values() {
    let manifests = render(&[]);
    assert_valid(&manifests);
    assert!(manifests.contains("HOB_ADMIN_TOKEN: "), "a token is generated: {manifests}");
    assert!(!manifests.contains("HOB_REDIS_URL"), "it uses the embedded engine: {manifests}");
}

#[test]
fn several_nodes_with_gateway_and_ingress_are_valid() {
    let manifests = render(&[
        "replicas=3",
        "existingSecret=hob-secrets",
        "gateway.enabled=true",
        "ingress.enabled=true",
        "ingress.className=nginx",
        "ingress.tlsSecret=certificate",
        "trustedProxies={10.0.0.0/8}",
        "environment[0].name=HOB_LOG",
        "environment[0].value=debug",
    ]);
    assert_valid(&manifests);
    for part in ["PodDisruptionBudget", "test-hob-gateway", "name: hob-secrets", "\"hob.example\"]"] {
        assert!(manifests.contains(part), "{part} is missing in {manifests}");
    }
    assert!(!manifests.contains("kind: Secret"), "the secret exists already: {manifests}");
}

#[test]
fn several_nodes_without_redis_are_refused() {
    let chart = chart();
    let refused = helm(&["template", "test", chart.to_str().unwrap(), "--set", "replicas=2"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("several nodes need Redis and PostgreSQL"));
}

/// A pod must not be killed before it has finished its requests, and the settings must be those of the program.
#[test]
fn settings_of_the_chart_are_settings_of_the_program() {
    let manifests = render(&["gateway.enabled=true", "trustedProxies={10.0.0.0/8}"]);
    let example = include_str!("../../../../hob.example.toml");
    for (variable, setting) in [
        ("HOB_SERVER_HOSTS", "# hosts ="),
        ("HOB_SERVER_TRUSTED_PROXIES", "# trusted_proxies ="),
        ("HOB_GATEWAY_LISTEN", "# listen ="),
    ] {
        assert!(manifests.contains(variable) && example.contains(setting), "{variable}");
    }
    let values = std::fs::read_to_string(chart().join("values.yaml")).unwrap();
    let seconds = |name: &str| -> u32 {
        let line = values.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    };
    let (drain, tasks) = (10, 10);
    assert!(example.contains("# drain_timeout = \"10s\""), "the default has changed");
    assert!(seconds("terminationGracePeriodSeconds:") > seconds("preStopSeconds:") + drain + tasks);
}

#[test]
fn version_is_that_of_the_program() {
    let text = std::fs::read_to_string(chart().join("Chart.yaml")).unwrap();
    for name in ["version", "appVersion"] {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).unwrap();
        assert_eq!(line.trim_matches('"'), env!("CARGO_PKG_VERSION"), "{name}");
    }
}
