//! Every write of an object that the index holds. The index knows of it before the call returns, so that the next decision
//! is not made from the old object, however late the watch is.

use std::fmt::Debug;

use kerf_cluster::Kind;
use kerf_runtime::{Lock, patch};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    context::Context,
    error::{Result, Tried, is_not_found},
};

/// An object without a namespace that the index holds.
pub(crate) trait Written:
    Kind + Resource<DynamicType = ()> + Clone + Debug + PartialEq + Serialize + DeserializeOwned
{
}

impl<K> Written for K where
    K: Kind + Resource<DynamicType = ()> + Clone + Debug + PartialEq + Serialize + DeserializeOwned
{
}

impl Context {
    /// Writes what changed between `before` and `after`, metadata and status. Returns the object as it is then.
    pub(crate) async fn write<K: Written>(
        &self,
        before: &K,
        after: K,
        lock: Lock,
        what: impl FnOnce() -> String,
    ) -> Result<K> {
        let written = self.send(before, &after, lock).await.tried(what)?;
        Ok(written.unwrap_or(after))
    }

    /// The same for those who judge a refusal themselves. `None`: nothing changed, and nothing was sent.
    pub(crate) async fn send<K: Written>(
        &self,
        before: &K,
        after: &K,
        lock: Lock,
    ) -> kube::Result<Option<K>> {
        let api = self.api();
        // Two requests and two objects are much to carry through every future that writes.
        let written = Box::pin(patch::patch_both(&api, before, after, lock)).await?;
        if let Some(written) = &written {
            self.index.anticipate(written.clone());
        }
        Ok(written)
    }

    pub(crate) async fn create<K: Written>(&self, object: &K) -> kube::Result<K> {
        let created = self.api().create(&PostParams::default(), object).await?;
        self.index.anticipate(created.clone());
        Ok(created)
    }

    /// Asks for the end of an object. One that is gone already is as good.
    pub(crate) async fn delete<K: Written>(&self, object: &K) -> Result<()> {
        let name = object.name_any();
        match self.api::<K>().delete(&name, &DeleteParams::default()).await {
            // The next decision must not count on it any more.
            Ok(answer) => {
                answer.map_left(|leaving| self.index.anticipate(leaving));
                Ok(())
            }
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error).tried(|| format!("deleting {} {name}", K::kind(&()))),
        }
    }

    fn api<K: Written>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }
}
