//! Child processes that never outlive the test process, however it ends.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

/// Runs a program and ends it (TERM, then KILL) when standard input closes, which
/// the kernel sees to when the test process is gone. Ends with the program's status.
const WATCH: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- &
child=$!
echo "$child" >"$PIDFILE.new" && mv "$PIDFILE.new" "$PIDFILE"
{ read -r _ <&3; kill -TERM "$child"; sleep 10; kill -KILL "$child"; } 2>/dev/null &
watcher=$!
wait "$child"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
"#;

/// One running program with its log.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    pid: u32,
    log: PathBuf,
    /// Bytes that earlier processes of that name wrote.
    before: usize,
}

impl Process {
    /// Starts a program with its arguments and environment; its output goes to `dir/name.log`,
    /// behind what an earlier process of that name wrote.
    pub fn start(name: &str, program: &Command, dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let log = dir.join(format!("{name}.log"));
        let pidfile = dir.join(format!("{name}.pid"));
        if pidfile.exists() {
            fs::remove_file(&pidfile)?;
        }
        let output = File::options().create(true).append(true).open(&log)?;
        let mut watch = Command::new("sh");
        for (key, value) in program.get_envs() {
            match value {
                Some(value) => watch.env(key, value),
                None => watch.env_remove(key),
            };
        }
        let before = usize::try_from(output.metadata()?.len())?;
        let child = watch
            .args(["-c", WATCH, "watch"])
            .arg(program.get_program())
            .args(program.get_args())
            .env("PIDFILE", &pidfile)
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let pid = read_pid(&pidfile)?;
        Ok(Self { name: name.to_owned(), child, pid, log, before })
    }

    /// Fails when the program has ended, with the end of its log.
    pub fn check(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "{} ended:\n{}", self.name, self.tail());
        Ok(())
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal such as `KILL`, `STOP` or `CONT` to the program itself.
    pub fn signal(&self, signal: &str) -> Result<()> {
        let done =
            Command::new("kill").arg(format!("-{signal}")).arg(self.pid.to_string()).status()?;
        ensure!(done.success(), "{} could not be sent {signal}", self.name);
        Ok(())
    }

    /// Sends a signal and waits until the program is gone.
    pub fn end(mut self, signal: &str) -> Result<()> {
        self.signal(signal)?;
        self.child.wait()?;
        Ok(())
    }

    /// The last lines it wrote.
    pub fn tail(&self) -> String {
        let text = self.log().unwrap_or_else(|error| error.to_string());
        let lines: Vec<&str> = text.lines().collect();
        lines.split_at(lines.len().saturating_sub(40)).1.join("\n")
    }

    /// All it wrote so far, which may end amid a character.
    pub fn log(&self) -> Result<String> {
        let all = fs::read(&self.log)?;
        Ok(String::from_utf8_lossy(all.get(self.before..).unwrap_or_default()).into_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            eprintln!("waiting for {} to end: {error}", self.name);
        }
    }
}

/// The shell writes the number at once; a second is generous.
fn read_pid(pidfile: &Path) -> Result<u32> {
    for _ in 0..500 {
        if let Ok(text) = fs::read_to_string(pidfile) {
            return Ok(text.trim().parse()?);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    anyhow::bail!("{} did not appear", pidfile.display())
}
