//! The Lua of a server: the interpreter of Redis with the functions that the scripts use.
//!
//! One interpreter serves all servers of a thread. Scripts of Redis set no globals, so that none
//! sees the state of another.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;

use mlua::{Function, HookTriggers, Lua, MultiValue, Table, Value, VmState};
use sha1::{Digest as _, Sha1};

use super::data::ScriptRun;
use super::pack;
use super::resp::Resp;
use crate::world::mutants::Mutant;

/// Instructions between two looks at the length of a call, and the most looks: a mutant may not end
/// by itself, and no call of a script has a tenth of these instructions.
const LOOK_EVERY: u32 = 100_000;
const MOST_LOOKS: u32 = 100;
/// Most lines between one of a statement and the one that the interpreter names.
const FAR_LINES: usize = 2;

/// The script that runs now, with the data of its server.
type Running = Rc<RefCell<Option<ScriptRun>>>;

struct Interpreter {
    lua: Lua,
    running: Running,
    compiled: BTreeMap<Vec<u8>, CompiledScript>,
    mutant: Option<Mutant>,
    /// Looks at the length of the call that runs.
    looks: Rc<Cell<u32>>,
    /// The number of the script that runs.
    number: Rc<Cell<usize>>,
    /// Numbers of scripts with lines of them that ran, if they are recorded.
    executed: Rc<RefCell<HashSet<(usize, usize)>>>,
}

struct CompiledScript {
    number: usize,
    function: Function,
}

thread_local! {
    static INTERPRETER: RefCell<Interpreter> = RefCell::new(Interpreter::new());
}

/// Returns the digest of a script's text, in hexadecimal digits.
pub fn digest(text: &[u8]) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Chooses the change of scripts that run on this thread from now on.
pub fn choose_mutant(mutant: Option<Mutant>) {
    INTERPRETER.with_borrow_mut(|interpreter| interpreter.choose_mutant(mutant));
}

/// Records the lines of scripts that run on this thread, instead of a mutant.
pub fn record_lines() {
    INTERPRETER.with_borrow_mut(Interpreter::record_lines);
}

/// Returns the lines that ran since the last call, and some near them: of a statement of several
/// lines, the interpreter names one.
#[must_use]
pub fn take_lines() -> BTreeSet<String> {
    INTERPRETER.with_borrow_mut(|interpreter| interpreter.take_lines())
}

/// Returns the texts of the scripts that ran on this thread.
#[must_use]
pub fn scripts() -> Vec<String> {
    INTERPRETER.with_borrow(|interpreter| {
        interpreter.compiled.keys().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    })
}

/// Runs a script on some data, and returns its reply with the data.
pub fn run(
    script: ScriptRun,
    text: &[u8],
    keys: &[Vec<u8>],
    arguments: &[Vec<u8>],
) -> (Resp, ScriptRun) {
    INTERPRETER.with_borrow_mut(|interpreter| {
        *interpreter.running.borrow_mut() = Some(script);
        let reply = interpreter.run(text, keys, arguments);
        let script = interpreter.running.borrow_mut().take().unwrap();
        (reply.unwrap_or_else(|error| Resp::Error(cause(&error))), script)
    })
}

/// Returns the text of an error, with the code that it began with.
fn cause(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause: inner, .. } => cause(inner),
        mlua::Error::RuntimeError(text) if text.starts_with(char::is_uppercase) => text.clone(),
        other => format!("ERR {}", other.to_string().replace(['\r', '\n'], " ")),
    }
}

/// Makes scripts fail that read or write a global variable which is not there, as servers do.
const NO_GLOBALS: &str = "\
    local function fails(_, name) error('Script attempted to access nonexistent global variable ' .. name) end
    setmetatable(_G, { __index = fails, __newindex = fails })";

impl Interpreter {
    fn new() -> Self {
        let lua = Lua::new();
        let running = Running::default();
        let redis = lua.create_table().unwrap();
        let of_call = Rc::clone(&running);
        let of_scripts = lua.create_function(move |lua, words| call(lua, &of_call, words, false));
        let of_pcall = Rc::clone(&running);
        let pcall = lua.create_function(move |lua, words| call(lua, &of_pcall, words, true));
        redis.set("call", of_scripts.unwrap()).unwrap();
        redis.set("pcall", pcall.unwrap()).unwrap();
        let sha1hex = |_: &Lua, text: mlua::LuaString| Ok(digest(&text.as_bytes()));
        redis.set("sha1hex", lua.create_function(sha1hex).unwrap()).unwrap();
        for (name, field) in [("error_reply", "err"), ("status_reply", "ok")] {
            let reply = move |lua: &Lua, text: mlua::LuaString| {
                let table = lua.create_table()?;
                table.set(field, text)?;
                Ok(table)
            };
            redis.set(name, lua.create_function(reply).unwrap()).unwrap();
        }
        lua.globals().set("redis", redis).unwrap();
        lua.globals().set("struct", pack::library(&lua).unwrap()).unwrap();
        lua.load(NO_GLOBALS).exec().unwrap();
        Self {
            lua,
            running,
            compiled: BTreeMap::new(),
            mutant: None,
            looks: Rc::default(),
            number: Rc::default(),
            executed: Rc::default(),
        }
    }

    fn choose_mutant(&mut self, mutant: Option<Mutant>) {
        self.compiled.clear();
        self.lua.remove_hook();
        if mutant.is_some() {
            let looks = Rc::clone(&self.looks);
            let triggers = HookTriggers::new().every_nth_instruction(LOOK_EVERY);
            let hook = self.lua.set_hook(triggers, move |_, _| {
                looks.set(looks.get() + 1);
                let is_long = looks.get() > MOST_LOOKS;
                if is_long { Err(mlua::Error::runtime("too long")) } else { Ok(VmState::Continue) }
            });
            hook.unwrap();
        }
        self.mutant = mutant;
    }

    fn record_lines(&mut self) {
        self.choose_mutant(None);
        let number = Rc::clone(&self.number);
        let executed = Rc::clone(&self.executed);
        let hook = self.lua.set_hook(HookTriggers::EVERY_LINE, move |_, debug| {
            if let Some(line) = debug.current_line() {
                executed.borrow_mut().insert((number.get(), line));
            }
            Ok(VmState::Continue)
        });
        hook.unwrap();
    }

    fn take_lines(&mut self) -> BTreeSet<String> {
        let executed = self.executed.take();
        let mut lines = BTreeSet::new();
        for (text, script) in &self.compiled {
            let text = String::from_utf8_lossy(text);
            let ran = (1_usize..).zip(text.lines());
            let ran = ran.filter(|(number, _)| {
                let mut near = number.saturating_sub(FAR_LINES)..=number + FAR_LINES;
                near.any(|number| executed.contains(&(script.number, number)))
            });
            lines.extend(ran.map(|(_, line)| line.to_owned()));
        }
        lines
    }

    fn compile(&self, text: &[u8]) -> mlua::Result<Function> {
        let mutated = self.mutant.as_ref().map(|mutant| {
            let text = String::from_utf8_lossy(text);
            mutant.applied(&text).into_bytes()
        });
        let text = mutated.as_deref().unwrap_or(text);
        self.lua.load(text).set_name("user_script").into_function()
    }

    fn run(&mut self, text: &[u8], keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> mlua::Result<Resp> {
        for (name, words) in [("KEYS", keys), ("ARGV", arguments)] {
            let table = self.lua.create_table_with_capacity(words.len(), 0)?;
            for (number, word) in words.iter().enumerate() {
                table.raw_set(number + 1, self.lua.create_string(word)?)?;
            }
            self.lua.globals().raw_set(name, table)?;
        }
        if !self.compiled.contains_key(text) {
            let script =
                CompiledScript { number: self.compiled.len(), function: self.compile(text)? };
            self.compiled.insert(text.to_vec(), script);
        }
        let script = &self.compiled[text];
        self.looks.set(0);
        self.number.set(script.number);
        let value = script.function.call::<Value>(())?;
        of_lua(&value)
    }
}

fn call(lua: &Lua, running: &Running, words: MultiValue, protects: bool) -> mlua::Result<Value> {
    let words: Vec<Vec<u8>> = words.iter().map(word).collect::<mlua::Result<_>>()?;
    let reply = running.borrow_mut().as_mut().unwrap().call(&words);
    match reply {
        Resp::Error(text) if !protects => Err(mlua::Error::runtime(text)),
        reply => to_lua(lua, &reply),
    }
}

/// Returns an argument of a call as Redis sends it.
fn word(value: &Value) -> mlua::Result<Vec<u8>> {
    match value {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(number) => Ok(number.to_string().into_bytes()),
        Value::Number(number) => Ok(format!("{number}").into_bytes()),
        other => Err(mlua::Error::runtime(format!("not an argument: {other:?}"))),
    }
}

#[allow(clippy::cast_precision_loss, reason = "Lua's numbers are doubles")]
fn to_lua(lua: &Lua, reply: &Resp) -> mlua::Result<Value> {
    let table = |field: &str, text: &str| -> mlua::Result<Value> {
        let table = lua.create_table()?;
        table.set(field, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Resp::Nil => Ok(Value::Boolean(false)),
        Resp::Integer(number) => Ok(Value::Number(*number as f64)),
        Resp::Bulk(bytes) => Ok(Value::String(lua.create_string(bytes)?)),
        Resp::Status(text) => table("ok", text),
        Resp::Error(text) => table("err", text),
        Resp::Array(all) => {
            let table = lua.create_table()?;
            for (number, reply) in all.iter().enumerate() {
                table.raw_set(number + 1, to_lua(lua, reply)?)?;
            }
            Ok(Value::Table(table))
        }
    }
}

/// Converts the result of a script, as Redis does: numbers lose their fraction, and a table ends at
/// its first nil.
#[allow(clippy::cast_possible_truncation, reason = "as in Redis")]
fn of_lua(value: &Value) -> mlua::Result<Resp> {
    Ok(match value {
        Value::String(text) => Resp::Bulk(text.as_bytes().to_vec()),
        Value::Integer(number) => Resp::Integer(*number),
        Value::Number(number) => Resp::Integer(*number as i64),
        Value::Boolean(true) => Resp::Integer(1),
        Value::Table(table) => of_table(table)?,
        _ => Resp::Nil,
    })
}

fn of_table(table: &Table) -> mlua::Result<Resp> {
    if let Some(error) = table.raw_get::<Option<mlua::LuaString>>("err")? {
        return Ok(Resp::Error(error.to_string_lossy()));
    }
    if table.raw_get::<Option<mlua::LuaString>>("ok")?.is_some() {
        return Ok(Resp::Status("OK"));
    }
    let table = table.clone();
    let all = table.sequence_values::<Value>();
    Ok(Resp::Array(all.map(|value| of_lua(&value?)).collect::<mlua::Result<_>>()?))
}
