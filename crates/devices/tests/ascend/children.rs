//! Tests in a process of their own, because the simulated library reads its environment once.

use std::process::Command;

/// One ignored test with an environment.
pub(crate) struct Child(Command);

impl Child {
    pub(crate) fn new(test: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
        Self(command)
    }

    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }
}

/// Runs it, unless a real library is to be tested, which takes no orders.
pub(crate) fn in_child(mut child: Child) {
    if std::env::var_os("ASCEND_HOME_PATH").is_some() {
        return;
    }
    let output = child.0.output().expect("a process");
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).join("\n");
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
