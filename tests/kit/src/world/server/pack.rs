//! `struct.pack` and `struct.unpack` of Redis' Lua: the formats that the scripts use.

use mlua::{Error, Lua, MultiValue, Result, Value};

/// One item of a format.
enum PackItem {
    /// An unsigned integer of this many bytes.
    Integer(usize),
    /// This many bytes of text; 0: as many as the number before it.
    Text(usize),
}

/// Returns the `struct` table.
pub fn library(lua: &Lua) -> Result<mlua::Table> {
    let table = lua.create_table()?;
    table.set("pack", lua.create_function(pack)?)?;
    table.set("unpack", lua.create_function(unpack)?)?;
    Ok(table)
}

/// Parses a format. All numbers are big-endian; single bytes need no order.
fn items(format: &[u8]) -> Result<Vec<PackItem>> {
    let mut items = Vec::new();
    let mut rest = format;
    while let Some((code, after)) = rest.split_first() {
        let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, next) = after.split_at(digits);
        let number = std::str::from_utf8(number).unwrap().parse::<usize>().ok();
        match code {
            b'>' => {}
            b'B' => items.push(PackItem::Integer(1)),
            b'I' => items.push(PackItem::Integer(number.unwrap_or(4))),
            b'c' => items.push(PackItem::Text(number.unwrap_or(1))),
            other => return Err(Error::runtime(format!("no format {}", char::from(*other)))),
        }
        rest = next;
    }
    Ok(items)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "as in Redis: a double is truncated, and a negative one wraps"
)]
fn pack(lua: &Lua, arguments: MultiValue) -> Result<mlua::LuaString> {
    let mut arguments = arguments.into_iter();
    let format = text(arguments.next())?;
    let mut packed = Vec::new();
    for item in items(&format.as_bytes())? {
        let value = arguments.next();
        match item {
            PackItem::Integer(bytes) => {
                let number = number(value.as_ref())?;
                let number = if number < 0.0 { (number as i64) as u64 } else { number as u64 };
                packed.extend_from_slice(&number.to_be_bytes()[8 - bytes..]);
            }
            PackItem::Text(length) => {
                let text = text(value)?;
                let bytes = text.as_bytes();
                let length = if length == 0 { bytes.len() } else { length };
                let part = bytes.get(..length).ok_or_else(|| Error::runtime("arg too short"))?;
                packed.extend_from_slice(part);
            }
        }
    }
    lua.create_string(packed)
}

#[allow(clippy::cast_precision_loss, reason = "as in Redis: Lua's numbers are doubles")]
fn unpack(lua: &Lua, arguments: MultiValue) -> Result<MultiValue> {
    let mut arguments = arguments.into_iter();
    let format = text(arguments.next())?;
    let data = text(arguments.next())?;
    let data = data.as_bytes();
    let position = arguments.next().map_or(Ok(1.0), |value| number(Some(&value)))?;
    let mut at = index(position)?;
    let mut values: Vec<Value> = Vec::new();
    for item in items(&format.as_bytes())? {
        let length = match item {
            PackItem::Integer(length) => length,
            PackItem::Text(0) => index(number(values.pop().as_ref())? + 1.0)?,
            PackItem::Text(length) => length,
        };
        let part =
            data.get(at..at + length).ok_or_else(|| Error::runtime("data string too short"))?;
        at += length;
        values.push(match item {
            PackItem::Integer(_) => {
                let number = part.iter().fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte));
                Value::Number(number as f64)
            }
            PackItem::Text(_) => Value::String(lua.create_string(part)?),
        });
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(MultiValue::from_vec(values))
}

/// Returns the index from 0 of a position from 1.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
fn index(position: f64) -> Result<usize> {
    if position < 1.0 { Err(Error::runtime("no position")) } else { Ok(position as usize - 1) }
}

fn text(value: Option<Value>) -> Result<mlua::LuaString> {
    match value {
        Some(Value::String(text)) => Ok(text),
        other => Err(Error::runtime(format!("string expected, got {other:?}"))),
    }
}

/// Returns a number, as `luaL_checknumber` does.
#[allow(clippy::cast_precision_loss, reason = "Lua's numbers are doubles")]
pub fn number(value: Option<&Value>) -> Result<f64> {
    match value {
        Some(Value::Integer(number)) => Ok(*number as f64),
        Some(Value::Number(number)) => Ok(*number),
        Some(Value::String(text)) => {
            let text = text.to_string_lossy();
            text.trim().parse().map_err(|_| Error::runtime("number expected"))
        }
        other => Err(Error::runtime(format!("number expected, got {other:?}"))),
    }
}
