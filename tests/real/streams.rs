//! Streams between kubectl and a kubelet: logs, exec, attach, port-forward. They pass unchanged.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::kubectl::{Kubectl, Way, finished};

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web-0}
spec: {nodeName: edge-a, containers: [{name: main, image: 'registry.test/web:1'}, {name: side, image: 'registry.test/side:1'}]}
status: {phase: Running}
";

/// A pod that the API server considers running.
async fn running(namespace: &'static str) -> Option<Kubectl> {
    let kubectl = Kubectl::start("admin", namespace, "filters: []\n").await?;
    kubectl.create(namespace, POD).await;
    let status = r#"--patch={"status":{"phase":"Running"}}"#;
    kubectl.admin(&["patch", "pod", "web-0", "--namespace", namespace, "--subresource=status", status]).await;
    Some(kubectl)
}

#[tokio::test]
async fn logs_are_the_same_and_followed_lines_arrive_at_once() {
    let Some(kubectl) = running("logs").await else { return };
    for more in [&[][..], &["--container=side"], &["--timestamps", "--tail=1"]] {
        let output = kubectl.same(&[&["logs", "web-0", "--namespace=logs"][..], more].concat()).await;
        assert!(String::from_utf8_lossy(&output.stdout).contains("line 3"), "{output:?}");
    }
    // kubectl prints the containers in any order.
    let sorted = async |way: Way| {
        let output = kubectl.prints(way, &["logs", "web-0", "--namespace=logs", "--all-containers", "--prefix"]).await;
        let mut lines: Vec<_> = output.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(Way::Through).await, sorted(Way::Direct).await);
    kubectl.same(&["logs", "web-1", "--namespace=logs"]).await;
    let mut following = kubectl.follows(Way::Through, &["logs", "web-0", "--namespace=logs", "--follow"]);
    assert_eq!(following.line().await, "web-0/main line 1");
}

#[tokio::test]
async fn exec_carries_input_output_and_exit_code_over_websocket_and_spdy() {
    let Some(kubectl) = running("exec").await else { return };
    for (websockets, weir) in
        [("true", Way::Through), ("false", Way::Through), ("true", Way::Token), ("false", Way::Token)]
    {
        let exec = async |way: Way, stdin: bool, command: &[&str], input: &str| {
            let arguments = [
                &["exec", "web-0", "--namespace=exec", "--container=main"][..],
                if stdin { &["--stdin"] } else { &[] },
                &["--"],
                command,
            ]
            .concat();
            let mut command = kubectl.goes(way, &arguments);
            command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets);
            let mut output = finished(command, input).await;
            // kubectl occasionally reports, on any route, that it is not ready for a stream that it requested.
            let stderr = String::from_utf8(output.stderr).unwrap();
            let own = |line: &&str| !(line.contains("websocket.go") && line.contains("Unknown stream id"));
            output.stderr = stderr.lines().filter(own).collect::<Vec<_>>().join("\n").into_bytes();
            output
        };
        let long = "a line of input\n".repeat(20_000);
        for (stdin, command, input) in [
            (false, &["echo", "hello", "world"][..], ""),
            (true, &["cat"], long.as_str()),
            (false, &["fail", "7"], ""),
            (false, &["none"], ""),
        ] {
            let through = exec(weir, stdin, command, input).await;
            let direct = exec(Way::Direct, stdin, command, input).await;
            assert_eq!(through, direct, "{command:?} by {weir:?}");
        }
        assert_eq!(exec(weir, true, &["cat"], &long).await.stdout, long.as_bytes());
        assert_eq!(exec(weir, false, &["fail", "7"], "").await.status.code(), Some(7));
    }
}

#[tokio::test]
async fn attach_echoes_its_input() {
    let Some(kubectl) = running("attach").await else { return };
    let arguments = ["attach", "web-0", "--namespace=attach", "--container=main", "--stdin"];
    let through = kubectl.run(Way::Through, &arguments, "one\ntwo\n").await;
    assert_eq!(String::from_utf8_lossy(&through.stdout), "one\ntwo\n", "{through:?}");
}

#[tokio::test]
async fn a_forwarded_port_responds_over_websocket_and_spdy() {
    let Some(kubectl) = running("forward").await else { return };
    for (websockets, way) in
        [("true", Way::Through), ("false", Way::Through), ("true", Way::Token), ("false", Way::Token)]
    {
        let arguments = ["port-forward", "pod/web-0", "--namespace=forward", "--address=127.0.0.1", ":8080"];
        let mut command = kubectl.goes(way, &arguments);
        let mut child =
            command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let output = lines.next_line().await.unwrap().unwrap();
        let address = output.strip_prefix("Forwarding from ").unwrap().split(' ').next().unwrap().to_owned();
        for _ in 0..3 {
            let mut connection = BufReader::new(TcpStream::connect(&address).await.unwrap());
            let mut line = String::new();
            connection.read_line(&mut line).await.unwrap();
            connection.write_all(b"there and back\n").await.unwrap();
            connection.read_line(&mut line).await.unwrap();
            assert_eq!(line, "port 8080\nthere and back\n", "websockets {websockets} by {way:?}");
        }
    }
}
