//! tbd
use super::*; 
pub(super) async fn get(_p:&Arc<Proxy>, _r: super::read::Read)->Result<http::Response<super::body::ResponseBody>, super::respond::Refusal>{ Err(super::respond::Refusal::Method)}
