//! Runs programs on the generated bindings, without the SDK between a program and the host.

use std::cell::RefCell;
use std::net::{TcpListener, TcpStream, UdpSocket};

use weir_filter::guest::bindings as host;
use weir_filter::guest::bindings::exports::weir::filter::module::{
    Description, Guest, Lookup, Object as Shown, Plan, Verdict,
};
use weir_filter::guest::bindings::weir::filter::cluster::{self, Selection};
use weir_filter::guest::bindings::weir::filter::objects::{Object, Path, StringSet, Value};
use weir_filter::guest::bindings::weir::filter::{log, node};

use crate::{Edit, Op, Program, Read, Select};

/// The lookups that every program may use.
const LOOKUPS: [&str; 3] = ["services", "nodes", "nodepools.apps.openyurt.io"];

#[derive(Default)]
struct State {
    program: Program,
    objects: u64,
    /// The last derived result and its fingerprint.
    memo: Option<(u64, u64)>,
    kept: Option<Object>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// One run of a program.
struct Run<'a> {
    state: &'a mut State,
    object: &'a Shown,
    hits: Vec<Object>,
    selection: Option<Selection>,
    number: u64,
}

struct Component;

impl Guest for Component {
    fn describe() -> Description {
        Description { name: "guest".to_owned(), version: "0.1.0".to_owned(), summary: "Runs its settings".to_owned() }
    }

    fn configure(settings: String) -> Result<Plan, String> {
        let program: Program = serde_json::from_str(&settings).map_err(|error| error.to_string())?;
        if program.configure_sleeps > 0 {
            std::thread::sleep(std::time::Duration::from_secs(program.configure_sleeps));
        }
        STATE.with_borrow_mut(|state| state.program = program);
        let lookup = |resource: &str| Lookup {
            resource: resource.to_owned(),
            versions: Vec::new(),
            name: None,
            label_selector: None,
            metadata_only: false,
            optional: true,
        };
        Ok(Plan { matches: vec!["*/*".to_owned()], lookups: LOOKUPS.map(lookup).into() })
    }

    fn filter(object: &Shown) -> Result<Verdict, String> {
        STATE.with_borrow_mut(|state| {
            state.objects += 1;
            let ops = state.program.ops.clone();
            let mut run = Run { state, object, hits: Vec::new(), selection: None, number: 7 };
            let mut ops = ops.iter();
            while let Some(op) = ops.next() {
                match op {
                    Op::Skip(every, count) if run.is_one_in(*every) => {
                        for _ in 0..*count {
                            ops.next();
                        }
                    }
                    Op::Hide(every) if run.is_one_in(*every) => return Ok(Verdict::Hide),
                    Op::Fail(every) if run.is_one_in(*every) => return Err(format!("failed at {}", run.number)),
                    op => run.step(op),
                }
            }
            Ok(Verdict::Keep)
        })
    }
}

impl Run<'_> {
    fn is_one_in(&self, every: u64) -> bool {
        self.number.is_multiple_of(every.max(1))
    }

    fn mix(&mut self, text: &str) {
        for byte in text.bytes().chain([0xff]) {
            self.number = (self.number ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
    }

    fn target(&self, target: usize) -> Option<&Object> {
        match target.checked_sub(1) {
            None => Some(self.object),
            Some(_) if self.hits.is_empty() => None,
            Some(hit) => self.hits.get(hit % self.hits.len()),
        }
    }

    fn own_namespace(&self, own: bool) -> Option<String> {
        if own { self.object.namespace() } else { None }
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Read(target, read) => {
                let Some(object) = self.target(*target) else { return };
                let text = text_of(object, read, self.number);
                self.mix(&text);
            }
            Op::Edit(target, edit) => {
                let Some(object) = self.target(*target) else { return };
                let result = apply(object, edit, self.number);
                self.mix(&format!("{result:?}"));
            }
            Op::Get(resource, own, name) => {
                let hit = cluster::get(resource, self.own_namespace(*own).as_deref(), name);
                self.hold(hit);
            }
            Op::Referent(resource, target, at) => {
                let Some(object) = self.target(*target) else { return };
                let hit = cluster::referent(resource, object, &path(at));
                self.hold(hit);
            }
            Op::Find(resource, own, selector) => {
                self.selection = Some(cluster::find(resource, self.own_namespace(*own).as_deref(), selector));
            }
            Op::Select(read) => self.select(read),
            Op::Memo(target, at) => {
                let Some(object) = self.target(*target) else { return };
                let (key, at) = (object.fingerprint(&path(at)) ^ sum(at), path(at));
                let derived = match self.state.memo {
                    Some((known, derived)) if known == key => derived,
                    _ => sum(&format!("{:?}", object.column(&at))),
                };
                self.state.memo = Some((key, derived));
                self.mix(&derived.to_string());
            }
            Op::Skip(..) | Op::Hide(_) | Op::Fail(_) => {}
            Op::Trap(every) => assert!(!self.is_one_in(*every), "trapped at {}", self.number),
            Op::Log(every) if self.is_one_in(*every) => log::write(log::Level::Debug, "one in many"),
            Op::Log(_) => {}
            Op::LogOnce if self.state.objects == 1 => log::write(log::Level::Debug, "the first call"),
            Op::LogOnce => {}
            Op::Addresses => self.mix(&format!("{:?}", node::addresses())),
            Op::KeepHit(read) => {
                if let Some(kept) = self.state.kept.take() {
                    let text = text_of(&kept, read, self.number);
                    self.mix(&text);
                }
                self.state.kept = self.hits.pop();
            }
            Op::Sleep(seconds) => std::thread::sleep(std::time::Duration::from_secs(*seconds)),
            Op::Print(lines) => {
                for line in 0..*lines {
                    println!("line {line} \u{202e}reversed\u{202c} {}", "x".repeat(1000));
                }
            }
            Op::Reach(port) => {
                for attempt in [
                    TcpStream::connect(("127.0.0.1", *port)).is_ok(),
                    TcpStream::connect(("localhost", *port)).is_ok(),
                    TcpListener::bind("127.0.0.1:0").is_ok(),
                    UdpSocket::bind("[::1]:0").is_ok(),
                    std::fs::read("/etc/hostname").is_ok(),
                    std::fs::read_dir(".").is_ok(),
                ] {
                    assert!(!attempt, "a module reached the machine");
                }
            }
            Op::LongOneOf(at, bytes) => {
                if let Ok(at) = Path::parse(at) {
                    let found = self.object.one_of(&at, &["x".repeat(*bytes)]);
                    self.mix(&format!("{found:?}"));
                }
            }
            Op::LongFind(resource, values) => {
                let values: Vec<String> = (0..*values).map(|value| format!("v{value}")).collect();
                self.selection = Some(cluster::find(resource, None, &format!("a in ({})", values.join(","))));
            }
            Op::LongSet(at, bytes) => {
                if let Ok(at) = Path::parse(at) {
                    let edited = self.object.set(&at, &Value::Text("x".repeat(*bytes)));
                    self.mix(&format!("{edited:?}"));
                }
            }
            Op::Count(most) => self.mix(&self.state.objects.min(*most).to_string()),
        }
    }

    fn hold(&mut self, hit: Option<Object>) {
        self.mix(if hit.is_some() { "found" } else { "not found" });
        self.hits.extend(hit);
    }

    fn select(&mut self, read: &Select) {
        let Some(selection) = &self.selection else { return };
        match read {
            Select::Count => {
                let count = selection.count().to_string();
                self.mix(&count);
            }
            Select::At(index) => {
                let hit = selection.at(*index);
                self.hold(hit);
            }
            Select::Column(at) => {
                let column = format!("{:?}", selection.column(&path(at)));
                self.mix(&column);
            }
            Select::Memo(at) => {
                let (key, at) = (selection.fingerprint(&path(at)) ^ sum(at).rotate_left(1), path(at));
                let derived = match self.state.memo {
                    Some((known, derived)) if known == key => derived,
                    _ => sum(&format!("{:?}", selection.column(&at))),
                };
                self.state.memo = Some((key, derived));
                self.mix(&derived.to_string());
            }
        }
    }
}

/// The path of an expression. All expressions of the programs are valid.
fn path(expression: &str) -> Path {
    match Path::parse(expression) {
        Ok(path) => path,
        Err(_) => std::process::abort(),
    }
}

fn sum(text: &str) -> u64 {
    text.bytes().fold(17, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn text_of(object: &Object, read: &Read, number: u64) -> String {
    match read {
        Read::ApiVersion => object.api_version(),
        Read::Kind => object.kind(),
        Read::Namespace => format!("{:?}", object.namespace()),
        Read::Name => object.name(),
        Read::Label(key) => format!("{:?}", object.label(key)),
        Read::Annotation(key) => format!("{:?}", object.annotation(key)),
        Read::Get(at) => format!("{:?}", object.get(&path(at))),
        Read::Text(at) => format!("{:?}", object.text(&path(at))),
        Read::TextOf(many) => format!("{:?}", object.text(&path(&format!("data.key-{}", number % many.max(&1))))),
        Read::OneOf(at, texts) => format!("{:?}", object.one_of(&path(at), texts)),
        Read::Column(at) => format!("{:?}", object.column(&path(at))),
        Read::Lengths(at) => format!("{:?}", object.lengths(&path(at))),
        Read::Keys(at) => format!("{:?}", object.keys(&path(at))),
        Read::Fingerprint(at) => (object.fingerprint(&path(at)) == object.fingerprint(&path(at))).to_string(),
        Read::Json => object.to_json(),
    }
}

fn apply(object: &Object, edit: &Edit, number: u64) -> Result<u32, String> {
    let value = |many: u64| Value::Text(format!("value-{}", number % many.max(1)));
    let rows = |count: u32| (0..count.div_ceil(8)).map(|byte| number.rotate_right(byte) as u8).collect::<Vec<_>>();
    let done = |result: Result<(), String>| result.map(|()| 0);
    match edit {
        Edit::Set(at, many) => done(object.set(&path(at), &value(*many))),
        Edit::SetRows(at, count) => done(object.set_rows(&path(at), &rows(*count), &value(4))),
        Edit::Remove(at) => object.remove(&path(at)),
        Edit::RemoveRows(at, count) => object.remove_rows(&path(at), &rows(*count)),
        Edit::Retain(at) => {
            let count = object.lengths(&path(at)).iter().sum();
            done(object.retain(&path(at), &rows(count)))
        }
        Edit::RetainIn(at, texts) => done(object.retain_in(&path(at), &StringSet::new(texts))),
        Edit::Append(at) => done(object.append(&path(at), &value(4))),
        Edit::Replace => done(object.replace(&object.to_json())),
    }
}

host::export!(Component with_types_in weir_filter::guest::bindings);
