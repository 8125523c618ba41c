// tests/fakes/plugins/install.h: puts fake plugins and their manifests into the folder of a test.
#pragma once

#include "fakes/plugins/fake_plugin.h"
#include "fakes/temp_dir.h"

#include <string>

namespace belay::testing {

inline std::string fake_file(const std::string& variant) {
  return BELAY_FAKE_PLUGIN_DIR "/libfake_" + variant + ".so";
}

inline std::string manifest(const std::string& id, const std::string& more = "",
                            const std::string& component = "", const std::string& name = "") {
  return "format = 1\nid = \"" + id + "\"\nversion = \"1.0.0\"\nabi = \"0.1\"\nlibrary = \"libbelay_" + id +
         ".so\"\n" + more + "\n[[component]]\nkind = \"" FAKE_KIND "\"\nname = \"" +
         (name.empty() ? id : name) + "\"\n" + component + R"(
[[component.field]]
key = "mode"
type = "string"
default = ""
doc = "What to do wrong."
[[component.field]]
key = "start"
type = "size"
default = "1KiB"
min = 0
max = "1MiB"
doc = "Where counting starts."
[[component.field]]
key = "score"
type = "int"
default = 500
doc = "The score it gives."
[[component.field]]
key = "acquires"
type = "string"
default = ""
doc = "A key that create acquires."
)";
}

// Puts a fake layer and its manifest into a folder; `count`: how many layers it offers.
inline void install_layer(const TempDir& dir, const std::string& variant, int count = 1,
                          const std::string& component = "") {
  const std::string library = dir / ("libbelay_" + variant + ".so");
  fs::copy_file(fake_file(variant), library, fs::copy_options::overwrite_existing);
  fs::permissions(library, fs::perms(0755));
  std::string text = "format = 1\nid = \"" + variant + "\"\nversion = \"1.0.0\"\nabi = \"0.1\"\nlibrary = \"libbelay_" +
                     variant + ".so\"\n";
  for (int i = 0; i < count; ++i)
    text += "[[component]]\nkind = \"belay.layer/1\"\nname = \"" + (i ? "l" + std::to_string(i) : variant) + "\"\n" +
            component;
  text += "[[component.field]]\nkey = \"mode\"\ntype = \"string\"\ndefault = \"\"\ndoc = \"What to do wrong.\"\n";  // a plugin's, whichever it stands at
  dir.write("libbelay_" + variant + ".plugin.toml", text);
}

// Puts a fake plugin and its manifest into a folder; `id` is the variant where it is not given.
inline std::string install(const TempDir& dir, const std::string& variant, const std::string& more = "",
                           const std::string& component = "", const std::string& name = "") {
  const std::string library = dir / ("libbelay_" + variant + ".so");
  fs::copy_file(fake_file(variant), library, fs::copy_options::overwrite_existing);
  fs::permissions(library, fs::perms(0755));
  dir.write("libbelay_" + variant + ".plugin.toml", manifest(variant, more, component, name));
  return library;
}

}  // namespace belay::testing
