//! Tables for `kubectl get` while no API server can be reached: the name and the age of each object, as the API server
//! prints custom resources without columns of their own.
//!
//! Memory: the whole Table. Online, Tables come from the API server.

use std::time::SystemTime;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use weir_kube::{Encoding, IncludeObject, MetaVersion, Transform};
use weir_store::cache::ObjectFormat;

use crate::serve::respond::StatusError;
use weir_upstream::clock;
use weir_view::converted;

/// What the cells need of an object.
#[derive(Deserialize)]
struct RowObject {
    metadata: RowMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RowMetadata {
    #[serde(default)]
    name: String,
    creation_timestamp: Option<jiff::Timestamp>,
}

/// Encodes objects as a Table. `list_version` is that of a list; the Table of one object has its version.
pub(super) fn table<'a>(
    format: &ObjectFormat,
    objects: impl IntoIterator<Item = &'a Bytes>,
    list_version: Option<u64>,
    (version, include): (MetaVersion, IncludeObject),
) -> Result<Bytes, StatusError> {
    let metadata = match list_version {
        Some(version) => json!({ "resourceVersion": version.to_string() }),
        None => json!({}),
    };
    let column = |name: &str, kind: &str, format: &str, description: &str| json!({"name": name, "type": kind, "format": format, "description": description, "priority": 0});
    let columns = json!([
        column("Name", "string", "name", "The name of the object"),
        column("Age", "date", "", "The time since the object was created"),
    ]);
    let head = json!({"kind": "Table", "apiVersion": version.api_version(), "metadata": metadata, "columnDefinitions": columns});
    let mut text = head.to_string();
    text.pop();
    text.push_str(",\"rows\":[");
    let now = clock::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    for (index, object) in objects.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&row(format, object, version, include, now)?);
    }
    text.push_str("]}\n");
    Ok(text.into())
}

fn row(
    format: &ObjectFormat,
    object: &Bytes,
    version: MetaVersion,
    include: IncludeObject,
    now: u64,
) -> Result<String, StatusError> {
    let invalid = |error: &dyn std::fmt::Display| StatusError::InvalidResponse(error.to_string());
    let json =
        |transform| converted(format, object.clone(), Encoding::Json, transform).map_err(|error| invalid(&error));
    let (metadata, _) = json(Transform::Metadata(version))?;
    let read: RowObject = serde_json::from_slice(&metadata).map_err(|error| invalid(&error))?;
    let created = read.metadata.creation_timestamp.map(|time| u64::try_from(time.as_second()).unwrap_or(0));
    let age = created.map_or_else(|| "<unknown>".to_owned(), |created| age(now.saturating_sub(created)));
    let cells = json!([read.metadata.name, age]);
    let object = match include {
        IncludeObject::None => Bytes::from_static(b"null"),
        IncludeObject::Metadata => metadata,
        IncludeObject::Object => json(Transform::None)?.0,
    };
    let object = std::str::from_utf8(&object).map_err(|error| invalid(&error))?;
    Ok(format!("{{\"cells\":{cells},\"object\":{}}}", object.trim_end()))
}

/// The age as kubectl prints it: two units at most, `HumanDuration` of apimachinery.
fn age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |large: u64, unit: &str, small: u64, part: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{part}"),
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => pair(days, "d", hours % 24, "h"),
        () if days < 730 => format!("{days}d"),
        () if days < 2920 => pair(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_printed_as_kubectl_prints_them() {
        const DAY: u64 = 86_400;
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 300, "3h5m"),
            (47 * 3600, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + 3 * 3600, "2d3h"),
            (9 * DAY, "9d"),
            (800 * DAY, "2y70d"),
            (730 * DAY, "2y"),
            (4000 * DAY, "10y"),
        ] {
            assert_eq!(age(seconds), text, "{seconds}");
        }
    }
}
