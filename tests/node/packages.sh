#!/bin/sh
# Debian's packages that a node needs, or others, unpacked into a folder and not installed:
# sh packages.sh FOLDER [PROGRAMS LIBRARIES]
set -eu
folder=$1
programs=${2:-containerd runc containernetworking-plugins nftables conntrack iptables busybox-static}
# Library packages carry the version of their ABI in their name: take those that this release's programs depend on. An
# extended regular expression.
libraries=${3:-^lib(nftables|nftnl|mnl|jansson|netfilter-conntrack|nfnetlink|ip4tc|ip6tc|xtables|seccomp)[0-9]}
[ -e "$folder/.complete" ] && exit 0
rm -rf "$folder" "$folder.deb"
mkdir -p "$folder" "$folder.deb"
cd "$folder.deb"
download() {
    found=$(apt-cache "$@" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
        --no-enhances $programs |
        grep -E "$libraries" | sort -u)
    apt-get "$@" -o APT::Sandbox::User=root download $programs $found
}
# The machine's own lists may be absent or too old: then new ones go beside the packages.
if ! download; then
    lists="Dir::State::lists=$folder.lists"
    mkdir -p "$folder.lists/partial"
    apt-get -o "$lists" -o APT::Sandbox::User=root update
    download -o "$lists"
    rm -r "$folder.lists"
fi
for package in *.deb; do dpkg -x "$package" "$folder"; done
# Where /usr is merged, the links in / lead there.
for name in bin sbin lib; do
    if [ -d "$folder/$name" ]; then
        mkdir -p "$folder/usr/$name"
        cp -a "$folder/$name/." "$folder/usr/$name/"
        rm -r "${folder:?}/$name"
    fi
done
rm -r "$folder.deb"
touch "$folder/.complete"
