package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd/api"
)

//go:embed crds/*.yaml
var crds embed.FS

// nodeName is the node with the stub kubelet. Its identity is among the kubeconfigs.
const nodeName = "edge-a"

// install creates the objects that every test needs.
func (c *cluster) install(ctx context.Context, manifests []string) error {
	names, err := fs.Glob(crds, "crds/*.yaml")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := crds.ReadFile(name)
		if err != nil {
			return err
		}
		if err := c.apply(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := c.established(ctx); err != nil {
		return err
	}
	for _, name := range manifests {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := c.apply(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// addNode creates the node with the stub kubelet.
func (c *cluster) addNode(ctx context.Context, kubelet *kubelet) error {
	node := &core.Node{
		ObjectMeta: meta.ObjectMeta{Name: nodeName, Labels: map[string]string{"kubernetes.io/hostname": nodeName}},
		Status: core.NodeStatus{
			Addresses:       []core.NodeAddress{{Type: core.NodeInternalIP, Address: kubelet.host}},
			DaemonEndpoints: core.NodeDaemonEndpoints{KubeletEndpoint: core.DaemonEndpoint{Port: kubelet.port}},
			Conditions:      []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}},
		},
	}
	_, err := c.typed.CoreV1().Nodes().Create(ctx, node, meta.CreateOptions{})
	return err
}

// apply creates every object of a manifest. The API server creates its own namespaces shortly after it is ready, so
// apply retries objects whose namespace is missing.
func (c *cluster) apply(ctx context.Context, manifest []byte) error {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.typed.Discovery()))
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if object.Object == nil {
			continue
		}
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return err
		}
		if err := again(ctx, func() error {
			resource := c.dynamic.Resource(mapping.Resource)
			if object.GetNamespace() == "" {
				_, err = resource.Create(ctx, object, meta.CreateOptions{})
			} else {
				_, err = resource.Namespace(object.GetNamespace()).Create(ctx, object, meta.CreateOptions{})
			}
			return err
		}); err != nil {
			return fmt.Errorf("%s %s: %w", kind.Kind, object.GetName(), err)
		}
	}
}

// again retries while something is missing.
func again(ctx context.Context, try func() error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		if last = try(); apierrors.IsNotFound(last) {
			return false, nil
		}
		return true, last
	})
	if last != nil {
		return last
	}
	return err
}

func (c *cluster) established(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		all, err := c.extensions.ApiextensionsV1().CustomResourceDefinitions().List(ctx, meta.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, crd := range all.Items {
			if !isEstablished(&crd) {
				return false, nil
			}
		}
		return true, nil
	})
}

func isEstablished(crd *extensions.CustomResourceDefinition) bool {
	for _, condition := range crd.Status.Conditions {
		if condition.Type == extensions.Established {
			return condition.Status == extensions.ConditionTrue
		}
	}
	return false
}

// writeServiceAccount writes weir.kubeconfig: the daemon's identity from deploy/rbac.yaml, with a token from the API
// server. Without that manifest it writes nothing.
func (c *cluster) writeServiceAccount(ctx context.Context, authority *authority, server, cut string) error {
	const namespace, name = "kube-system", "weir"
	// As long as the certificates: a long run ends before its daemon's credential does.
	lifetime := int64((24 * time.Hour).Seconds())
	request := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{ExpirationSeconds: &lifetime}}
	token, err := c.typed.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, meta.CreateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("a token for %s/%s: %w", namespace, name, err)
	}
	return authority.kubeconfigs(name, server, cut, &api.AuthInfo{Token: token.Status.Token})
}
