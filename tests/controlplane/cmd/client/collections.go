package main

import (
	"context"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
)

// lister is the common interface of all typed clients of a resource.
type lister[L runtime.Object] interface {
	List(context.Context, meta.ListOptions) (L, error)
	Watch(context.Context, meta.ListOptions) (watch.Interface, error)
}

func collectionOf[L runtime.Object](example runtime.Object, from lister[L]) collection {
	return collection{
		example: example, watch: from.Watch,
		list: func(ctx context.Context, options meta.ListOptions) (runtime.Object, error) {
			return from.List(ctx, options)
		},
	}
}

func servicesOf(client kubernetes.Interface) collection {
	return collectionOf(&core.Service{}, client.CoreV1().Services(""))
}

func slicesOf(client kubernetes.Interface) collection {
	return collectionOf(&discovery.EndpointSlice{}, client.DiscoveryV1().EndpointSlices(""))
}

func endpointsOf(client kubernetes.Interface) collection {
	return collectionOf(&core.Endpoints{}, client.CoreV1().Endpoints(""))
}

func configMapsOf(client kubernetes.Interface) collection {
	return collectionOf(&core.ConfigMap{}, client.CoreV1().ConfigMaps(""))
}

func nodesOf(client kubernetes.Interface) collection {
	return collectionOf(&core.Node{}, client.CoreV1().Nodes())
}

func metadataOf(client metadata.Interface, resource schema.GroupVersionResource) collection {
	return collectionOf(&meta.PartialObjectMetadata{}, client.Resource(resource))
}

// metadataOfObject returns what a client of metadata holds of an object.
func metadataOfObject(object runtime.Object) runtime.Object {
	accessor, err := apimeta.Accessor(object)
	if err != nil {
		return object
	}
	return apimeta.AsPartialObjectMetadata(accessor)
}

func customOf(client dynamic.Interface, resource schema.GroupVersionResource) collection {
	return collectionOf(&unstructured.Unstructured{}, client.Resource(resource))
}
